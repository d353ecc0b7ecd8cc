package measure

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/crowd"
	"github.com/hetero-train/hetero-train/engine/handshake"
	"github.com/hetero-train/hetero-train/engine/ports"
)

// Group exchanges values between ranks during measurements. *rendezvous.Group implements it.
type Group interface {
	Rank() int
	Size() int
	// Gather exchanges one value per rank and returns the values of all ranks, by rank.
	Gather(ctx context.Context, name string, value []byte) ([][]byte, error)
}

// Link is the measurement of a TCP connection between the ranks A and B, with A < B. If the link was not measured,
// Error contains the reason, and all values are 0.
type Link struct {
	A              int     `json:"a"`
	B              int     `json:"b"`
	LatencySeconds float64 `json:"latency_seconds"` // one-way latency: half of the median round-trip time of 8 bytes
	AToB           float64 `json:"a_to_b_mbytes_per_second"`
	BToA           float64 `json:"b_to_a_mbytes_per_second"`
	Together       bool    `json:"together"` // other pairs of ranks were measured at the same time
	Error          string  `json:"error,omitempty"`
}

// LinkOptions configures Links.
type LinkOptions struct {
	Host     string      // address of this rank's machine, as other ranks can reach it
	Ports    ports.Range // ports on which this rank may listen; empty: the system chooses a port
	Budget   time.Duration
	Progress func(done, total int) // called with the number of completed rounds and of all rounds; may be nil
}

// Links measures the network between ranks over plain TCP connections. For up to 16 ranks, it measures all pairs. For
// more ranks, it measures a ring and random pairs. All ranks must call it, and all ranks get the same list. If two
// ranks cannot connect, their entry has an Error. Links itself returns an error only if the exchange through the group
// fails.
//
// During the measurement, each rank listens on a port. It serves only callers that know the random key which the ranks
// exchanged through the group. Callers prove this with package handshake.
func Links(ctx context.Context, g Group, o LinkOptions) ([]Link, error) {
	rounds, slot := schedule(g.Size(), o.Budget)
	door, err := openDoor(ctx, o)
	if err != nil {
		door = &entrance{reason: err.Error()}
	}
	defer door.close()
	word, err := json.Marshal(doorSign{door.address(), door.key[:], door.reason})
	if err != nil {
		return nil, err
	}
	words, err := g.Gather(ctx, "links: open ports", word)
	if err != nil {
		return nil, err
	}
	signs := make([]doorSign, len(words))
	for rank, w := range words {
		if err := json.Unmarshal(w, &signs[rank]); err != nil {
			return nil, fmt.Errorf("links: rank %d: %w", rank, err)
		}
	}
	var mine []Link
	for i, round := range rounds {
		if _, err := g.Gather(ctx, "links: round", nil); err != nil {
			return nil, err
		}
		for _, pair := range round {
			switch g.Rank() {
			case pair[0]:
				l := Link{A: pair[0], B: pair[1], Together: len(round) > 1}
				l.measure(ctx, signs[pair[1]], i, slot)
				mine = append(mine, l)
			case pair[1]:
				if err := door.serve(ctx, i, slot); err != nil {
					mine = append(mine, Link{A: pair[0], B: pair[1], Error: err.Error()})
				}
			}
		}
		if o.Progress != nil {
			o.Progress(i+1, len(rounds))
		}
	}
	return gatherLinks(ctx, g, mine)
}

// gatherLinks returns the links of all ranks. Rank A of a link measures it. Rank B has an entry for the link only if B
// accepted no connections; the entry contains the reason.
func gatherLinks(ctx context.Context, g Group, mine []Link) ([]Link, error) {
	word, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	words, err := g.Gather(ctx, "links: results", word)
	if err != nil {
		return nil, err
	}
	var all []Link
	reasons := map[[2]int]string{}
	for rank, w := range words {
		var list []Link
		if err := json.Unmarshal(w, &list); err != nil {
			return nil, fmt.Errorf("links: results of rank %d: %w", rank, err)
		}
		for _, l := range list {
			if l.B == rank {
				reasons[[2]int{l.A, l.B}] = l.Error
			} else {
				all = append(all, l)
			}
		}
	}
	for i := range all {
		l := &all[i]
		if reason := reasons[[2]int{l.A, l.B}]; reason != "" && l.Error != "" {
			l.Error += fmt.Sprintf("; rank %d: %s", l.B, reason)
		}
	}
	return all, nil
}

// doorSign contains the listening address of a rank and its key.
type doorSign struct {
	Address string
	Key     []byte
	Reason  string // reason why the rank does not listen
}

// mostGuests is the largest number of open connections to the listener of a rank. The partner of a round needs only one
// of them. With its first message, the partner proves that it knows the key.
const mostGuests = 64

// entrance is the listener of a rank.
type entrance struct {
	listener net.Listener
	guests   *crowd.Crowd
	fault    crowd.Fault
	key      [32]byte
	reason   string
	arrivals chan arrival
	closed   chan struct{}
	once     sync.Once
}

// arrival is an accepted connection that has sent the key.
type arrival struct {
	conn  net.Conn
	round byte // low bits of the round
}

// protocol returns the handshake with a rank that has a key. The claim in the handshake is the low bits of the round.
func protocol(key []byte) handshake.Protocol {
	return handshake.Protocol{Name: [8]byte{'h', 't', 'r', 'l', 'i', 'n', 'k', 1}, Secret: key, Claim: 1}
}

func openDoor(ctx context.Context, o LinkOptions) (*entrance, error) {
	d := &entrance{guests: crowd.New(mostGuests), arrivals: make(chan arrival, 1), closed: make(chan struct{})}
	if _, err := rand.Read(d.key[:]); err != nil {
		return nil, err
	}
	var err error
	if d.listener, err = o.Ports.Listen(ctx, net.ListenConfig{}, o.Host); err != nil {
		return nil, err
	}
	go d.accept()
	return d, nil
}

func (d *entrance) address() string {
	if d.listener == nil {
		return ""
	}
	return d.listener.Addr().String()
}

func (d *entrance) accept() {
	for {
		conn, err := crowd.Next(d.listener.Accept, &d.fault)
		if err != nil {
			return // the listener is closed
		}
		if guest := d.guests.Enter(conn); guest != nil {
			go d.admit(conn, guest)
		}
	}
}

// admit identifies a caller.
func (d *entrance) admit(conn net.Conn, guest *crowd.Guest) {
	defer guest.Leave()
	var round byte
	err := conn.SetDeadline(time.Now().Add(2 * time.Second))
	if err == nil {
		_, err = protocol(d.key[:]).Answer(conn, func(claim []byte) error {
			round = claim[0]
			guest.Prove()
			return nil
		})
	}
	if err != nil {
		conn.Close()
		return
	}
	select {
	case d.arrivals <- arrival{conn, round}:
	case <-d.closed:
		conn.Close()
	}
}

func (d *entrance) close() {
	if d.listener == nil {
		return
	}
	d.once.Do(func() { close(d.closed); d.listener.Close() })
	select {
	case late := <-d.arrivals:
		late.conn.Close()
	default:
	}
}

// serve serves the partner of a round until the partner is done or the slot has ended. If this rank cannot accept
// connections, serve returns the reason. It ignores other errors, because the partner also detects them.
func (d *entrance) serve(ctx context.Context, round int, slot time.Duration) error {
	if d.listener == nil {
		return nil
	}
	deadline := time.Now().Add(slot)
	timer := time.NewTimer(slot)
	defer timer.Stop()
	for {
		select {
		case a := <-d.arrivals:
			if a.round == byte(round) {
				answer(a.conn, deadline)
				a.conn.Close()
				return nil
			}
			a.conn.Close() // the connection came too late for its round
		case <-timer.C:
			return d.fault.Err()
		case <-ctx.Done():
			return nil
		}
	}
}

// measure measures a link and sets its values.
func (l *Link) measure(ctx context.Context, to doorSign, round int, slot time.Duration) {
	if to.Address == "" {
		l.Error = "rank " + fmt.Sprint(l.B) + " cannot listen: " + to.Reason
		return
	}
	deadline := time.Now().Add(slot)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", to.Address)
	if err != nil {
		l.Error = err.Error()
		return
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) }) // ends reads and writes
	defer stop()
	if _, err = protocol(to.Key).Call(conn, []byte{byte(round)}); err == nil {
		err = l.talk(conn, slot)
	}
	if err != nil {
		*l = Link{A: l.A, B: l.B, Together: l.Together, Error: err.Error()}
	}
}

// talk runs the three measurements of a link. Each may take a quarter of the slot.
func (l *Link) talk(conn net.Conn, slot time.Duration) error {
	latency, err := roundTrip(conn, slot/4)
	if err != nil {
		return fmt.Errorf("latency: %w", err)
	}
	l.LatencySeconds = latency.Seconds() / 2
	if l.AToB, err = throughput(conn, send, slot/4); err != nil {
		return fmt.Errorf("bandwidth to rank %d: %w", l.B, err)
	}
	if l.BToA, err = throughput(conn, receive, slot/4); err != nil {
		return fmt.Errorf("bandwidth from rank %d: %w", l.B, err)
	}
	return leave(conn)
}
