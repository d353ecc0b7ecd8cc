package rendezvous

import (
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"
)

const pendingPerRank = 4 // concurrent handshakes per rank

// Minimum time that a handshake gets before the server may drop it in favour of a waiting connection. Ranks send their
// greeting at once, so a connection without a greeting gets less time (strangerStay). After the greeting, one round
// trip follows.
const (
	strangerStay = 10 * time.Millisecond
	greeterStay  = 500 * time.Millisecond
)

// door limits the number of connections in the handshake, so that unknown clients cannot exhaust the server's
// connections.
type door struct {
	limit int
	log   *slog.Logger
	room  chan struct{} // receives a token when a visit has ended

	mu       sync.Mutex
	closed   bool
	visits   []*visit             // oldest first
	lastSaid map[string]time.Time // by address: time of the last logged refusal
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

// enter admits a connection to the handshake. If too many handshakes are in progress, enter waits until one ends, or
// drops one that has had its minimum time.
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

// longest returns the connection to drop: the oldest connection of the address with the most connections. If some
// connections have sent no greeting, only those are considered. The caller must hold d.mu, and d.visits must not be
// empty.
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

// remove removes a visit from the list. The caller must hold d.mu.
func (d *door) remove(v *visit) {
	if i := slices.Index(d.visits, v); i >= 0 {
		d.visits = slices.Delete(d.visits, i, i+1)
	}
}

// greeted records that a visit has sent a valid greeting. v is nil for rank 0's own connection.
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

// wake makes enter check for room again.
func (d *door) wake() {
	select {
	case d.room <- struct{}{}:
	default:
	}
}

// close drops all connections in the handshake.
func (d *door) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.wake()
	for _, v := range d.visits {
		_ = v.conn.Close()
	}
}

// complain logs a failed handshake, at most once per second and address.
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
	d.log.Warn("rejected a connection to the rendezvous port", "from", from, "reason", err)
}

func addressOf(conn net.Conn) string {
	address := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
