package rendezvous

import (
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"
)

const pendingPerRank = 4 // connections that may be in the handshake at once, times the ranks

// How long a connection may stay in a handshake that others wait for: without a greeting, which ranks send at once, and
// with one, after which a message goes to and fro.
const (
	strangerStay = 10 * time.Millisecond
	greeterStay  = 500 * time.Millisecond
)

// door keeps strangers from taking all the room: it limits how many connections may be in the handshake.
type door struct {
	limit int
	log   *slog.Logger
	room  chan struct{} // has room for one; a visit has ended

	mu       sync.Mutex
	closed   bool
	visits   []*visit             // oldest first
	lastSaid map[string]time.Time // by address: when a refusal was last logged
}

// visit is a connection in the handshake.
type visit struct {
	conn    net.Conn
	from    string // address without port
	since   time.Time
	greeted bool
}

func newDoor(limit int, log *slog.Logger) *door {
	return &door{limit: limit, log: log, room: make(chan struct{}, 1), lastSaid: map[string]time.Time{}}
}

// enter lets a connection in. Where there are too many it waits until one is done or has had its time; that one is dropped.
func (d *door) enter(conn net.Conn) *visit {
	v := &visit{conn: conn, from: addressOf(conn), since: time.Now()}
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.visits) >= d.limit && !d.closed {
		longest := d.longest()
		stay := strangerStay
		if longest.greeted {
			stay = greeterStay
		}
		wait := stay - time.Since(longest.since)
		if wait <= 0 {
			d.remove(longest)
			_ = longest.conn.Close()
			break
		}
		d.mu.Unlock()
		select {
		case <-d.room:
		case <-time.After(wait):
		}
		d.mu.Lock()
	}
	if d.closed {
		_ = conn.Close()
		return v
	}
	v.since = time.Now()
	d.visits = append(d.visits, v)
	return v
}

// longest is who goes when there is no room: the oldest of the address that has most connections, among those that have
// not greeted if there are any. d.mu is held, and somebody is there.
func (d *door) longest() *visit {
	strangers := slices.ContainsFunc(d.visits, func(v *visit) bool { return !v.greeted })
	counts := map[string]int{}
	most := ""
	for _, v := range d.visits {
		if v.greeted == strangers {
			continue
		}
		if counts[v.from]++; counts[v.from] > counts[most] {
			most = v.from
		}
	}
	return d.visits[slices.IndexFunc(d.visits, func(v *visit) bool { return v.greeted != strangers && v.from == most })]
}

// remove takes a visit off the list. d.mu is held.
func (d *door) remove(v *visit) {
	if i := slices.Index(d.visits, v); i >= 0 {
		d.visits = slices.Delete(d.visits, i, i+1)
	}
}

// greeted notes that a visit speaks the protocol. Rank 0's own is nil.
func (d *door) greeted(v *visit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v != nil {
		v.greeted = true
	}
}

// leave ends a visit.
func (d *door) leave(v *visit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(v)
	d.wake()
}

// wake lets enter look again.
func (d *door) wake() {
	select {
	case d.room <- struct{}{}:
	default:
	}
}

// close drops everyone who is in the handshake.
func (d *door) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.wake()
	for _, v := range d.visits {
		_ = v.conn.Close()
	}
}

// complain logs a failed handshake, once a second for an address.
func (d *door) complain(conn net.Conn, err error) {
	from := addressOf(conn)
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.closed || now.Sub(d.lastSaid[from]) < time.Second {
		return
	}
	if len(d.lastSaid) >= 1024 {
		clear(d.lastSaid)
	}
	d.lastSaid[from] = now
	d.log.Warn("connection to the rendezvous port refused", "from", from, "reason", err)
}

func addressOf(conn net.Conn) string {
	address := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
