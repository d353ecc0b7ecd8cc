//go:build cgo && linux

package gloo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/handshake"
	"github.com/hetero-train/hetero-train/engine/ports"
)

// slow is a Control whose calls take some time. If their context ends earlier, they fail.
type slow struct{ collectivetest.Seat }

func (s slow) Set(ctx context.Context, key string, value []byte) error {
	select {
	case <-time.After(50 * time.Millisecond):
		return s.Seat.Set(ctx, key, value)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// configs returns the configurations of two ranks that share a board. Rank 1 connects to rank 0.
func configs(control func(collectivetest.Seat) Control) (b *collectivetest.Board, ranks [2]Config) {
	b = collectivetest.NewBoard()
	for rank, host := range []string{"127.0.0.1", "127.0.0.2"} {
		ranks[rank] = Config{Rank: rank, Size: 2, Control: control(collectivetest.Seat{Board: b, Rank: rank}),
			RankOf: collectivetest.LostRank, Host: host}
	}
	return b, ranks
}

func seat(s collectivetest.Seat) Control { return s }

// Rank 1 knows the address of rank 0 and has connected. Rank 0 is still waiting for the address of rank 1.
func TestOneRankHasConnectedBeforeTheOtherKnows(t *testing.T) {
	need(t)
	_, ranks := configs(func(s collectivetest.Seat) Control { return slow{s} })
	comms := collectivetest.Connected(t, 2, func(ctx context.Context, rank int) (*Communicator, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return Connect(ctx, ranks[rank])
	})
	meetOnce(t, comms)
}

// Wherever Connect waits, it must return if the context ends or the other rank is lost. The error must state the
// reason.
func TestConnectingEnds(t *testing.T) {
	need(t)
	errGone := errors.New("gone")
	for _, c := range []struct {
		name    string
		rank    int  // rank that waits
		listens bool // the other rank publishes its address, but does not connect or answer
		phase   string
	}{
		{"before the other says where it listens", 1, false, "wait for the address of rank 0: "},
		{"before the other answers", 1, true, "wait for the connection with rank 0: "},
		{"before the other connects", 0, true, "wait for the connection with rank 1: "},
	} {
		for _, lost := range []bool{false, true} {
			b, ranks := configs(seat)
			other := 1 - c.rank
			if c.listens {
				silent, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer silent.Close()
				word, err := json.Marshal(endpoint{Address: silent.Addr().String(), Key: make([]byte, keyBytes)})
				if err != nil {
					t.Fatal(err)
				}
				if err := b.Set(t.Context(), ranks[other].endpointKey(other), word); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			began := make(chan struct{})
			ranks[c.rank].Control = watched{ranks[c.rank].Control, began, c.listens}
			go func() {
				<-began
				// The rank is probably waiting now. If it is not waiting yet, its error is the same.
				time.Sleep(20 * time.Millisecond)
				if lost {
					b.Lose(other, errGone)
				} else {
					cancel(errGone)
				}
			}()
			_, err := Connect(ctx, ranks[c.rank])
			cancel(nil)
			var peer *collective.PeerError
			says := fmt.Sprintf("rank %d of 2: connect: %s", c.rank, c.phase)
			if !errors.Is(err, errGone) || !strings.Contains(err.Error(), says) ||
				lost != (errors.As(err, &peer) && peer.Rank == other) {
				t.Errorf("%s, rank %d lost: %v: got %v", c.name, other, lost, err)
			}
		}
	}
}

// The error must be a communication error. It must name the missing rank, the port, and other connections to this port.
func TestTheOtherRankIsMissing(t *testing.T) {
	need(t)
	for _, limit := range []time.Duration{300 * time.Millisecond, 3 * time.Second, 30 * time.Second} {
		// a busy machine needs a longer time limit
		_, ranks := configs(seat)
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		said, dialled := make(chan endpoint, 1), make(chan error, 1)
		ranks[0].Control = told{ranks[0].Control, said}
		go func() {
			conn, err := net.Dial("tcp", (<-said).Address)
			if err == nil {
				err = conn.Close()
			}
			dialled <- err
		}()
		_, err := Connect(ctx, ranks[0])
		cancel()
		if dialErr := <-dialled; limit < 30*time.Second &&
			(dialErr != nil || strings.Contains(err.Error(), "rejected 0 connections")) {
			continue // rank 0 stopped waiting before the connection arrived
		}
		var peer *collective.PeerError
		if !errors.As(err, &peer) || peer.Rank != 1 || !strings.Contains(err.Error(), "port 127.0.0.1:") ||
			!strings.Contains(err.Error(), "rejected 1 connections") {
			t.Errorf("got %v, want a PeerError that names rank 1, the port and one rejected connection", err)
		}
		return
	}
}

// While a rank connects, connections of other programs must not disturb the group or its first operation.
func TestStrayConnectionsAreTurnedAway(t *testing.T) {
	need(t)
	const fewer, more = spareGuests / 2, 2 * spareGuests // compared with the permitted number of concurrent handshakes
	visitor := Config{Secret: []byte("the token of the run")}
	for name, attack := range map[string]struct {
		connections int
		stray       func(net.Conn, endpoint)
	}{
		"reset": {more, func(c net.Conn, _ endpoint) {
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}},
		"closed":            {more, func(c net.Conn, _ endpoint) { c.Close() }},
		"held":              {fewer, func(net.Conn, endpoint) {}},
		"more than allowed": {more, func(net.Conn, endpoint) {}}, // the rank connects after some have closed
		"garbage": {more, func(c net.Conn, _ endpoint) {
			_, _ = c.Write([]byte(strings.Repeat("GET / HTTP/1.1\r\n", 100)))
		}},
		"a greeting alone": {fewer, func(c net.Conn, _ endpoint) {
			_, _ = c.Write(append(bytes.Clone(magic[:]), make([]byte, handshake.NonceBytes)...))
		}},
		"another key": {fewer, func(c net.Conn, p endpoint) {
			p.Key = make([]byte, keyBytes)
			_, _ = visitor.protocol(p).Call(c, claimOf(1))
		}},
		"the key without the token": {fewer, func(c net.Conn, p endpoint) {
			_, _ = Config{}.protocol(p).Call(c, claimOf(1))
		}},
		"no such rank": {fewer, func(c net.Conn, p endpoint) { _, _ = visitor.protocol(p).Call(c, claimOf(9)) }},
		"a reset within the handshake": {fewer, func(c net.Conn, p endpoint) {
			_, _ = visitor.protocol(p).Call(c, claimOf(1))
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}},
		"a handshake without the commitment": {fewer, func(c net.Conn, p endpoint) {
			_, _ = visitor.protocol(p).Call(c, claimOf(1))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, ranks := configs(seat)
			ranks[0].Secret, ranks[1].Secret = visitor.Secret, visitor.Secret
			said, attacked := make(chan endpoint, 1), make(chan struct{})
			ranks[0].Control = told{ranks[0].Control, said}
			ranks[1].Control = late{ranks[1].Control, attacked}
			var conns []net.Conn
			go func() {
				defer close(attacked)
				for p, i := <-said, 0; i < attack.connections; i++ {
					conn, err := net.Dial("tcp", p.Address)
					if err != nil {
						t.Error(err)
						return
					}
					conns = append(conns, conn)
					attack.stray(conn, p)
				}
			}()
			comms := collectivetest.Connected(t, 2, func(ctx context.Context, rank int) (*Communicator, error) {
				return Connect(ctx, ranks[rank])
			})
			meetOnce(t, comms)
			for _, c := range conns {
				c.Close()
			}
		})
	}
}

// claimOf returns the claim of a rank in the handshake.
func claimOf(rank byte) []byte { return []byte{rank, 0, 0, 0} }

// If a recorded connection is replayed, the rank must refuse it, because each handshake has fresh random numbers.
func TestARecordedConnectionIsRefused(t *testing.T) {
	need(t)
	_, ranks := configs(seat)
	said, attacked := make(chan endpoint, 1), make(chan struct{})
	ranks[0].Control = told{ranks[0].Control, said}
	ranks[1].Control = late{ranks[1].Control, attacked}
	go func() {
		defer close(attacked)
		p := <-said
		recorded, err := net.Dial("tcp", p.Address)
		if err != nil {
			t.Error(err)
			return
		}
		tape := &tape{Conn: recorded}
		if _, err := ranks[1].protocol(p).Call(tape, claimOf(1)); err != nil {
			t.Error(err)
		}
		recorded.Close()
		replay, err := net.Dial("tcp", p.Address)
		if err != nil {
			t.Error(err)
			return
		}
		defer replay.Close()
		if _, err := replay.Write(append(tape.sent, 1)); err != nil {
			t.Error(err)
		}
		_ = replay.SetReadDeadline(time.Now().Add(time.Minute))
		if answer, err := io.ReadAll(replay); len(answer) != handshake.GreetingBytes+1 || errors.Is(err,
			os.ErrDeadlineExceeded) {
			t.Errorf("got %d bytes and %v, want a greeting and a refusal", len(answer), err)
		}
	}()
	meetOnce(t, collectivetest.Connected(t, 2, func(ctx context.Context, rank int) (*Communicator, error) {
		return Connect(ctx, ranks[rank])
	}))
}

// tape records the sent bytes.
type tape struct {
	net.Conn
	sent []byte
}

func (t *tape) Write(p []byte) (int, error) {
	t.sent = append(t.sent, p...)
	return t.Conn.Write(p)
}

// Ranks must listen only on ports of the range. If all of these ports are in use, the error must name the range.
func TestRanksListenOnTheGivenPorts(t *testing.T) {
	need(t)
	first, held := porttest.Held(t, 2)
	_, ranks := configs(seat)
	said := make(chan endpoint, 2)
	for i := range ranks {
		ranks[i].Host, ranks[i].Ports = "127.0.0.1", ports.Range{First: first, Last: first + 1}
	}
	ranks[0].Control = told{ranks[0].Control, said}
	full := ranks[0]
	full.Ports.Last = first
	var none *ports.FullError
	if _, err := Connect(t.Context(), full); !errors.As(err, &none) || none.Range != full.Ports {
		t.Errorf("got %v, want a FullError", err)
	}
	held[1].Close()                // frees the port for the rank
	ranks[1].Ports = ports.Range{} // two ranks of one machine need two ports
	meetOnce(t, collectivetest.Connected(t, 2, func(ctx context.Context, rank int) (*Communicator, error) {
		return Connect(ctx, ranks[rank])
	}))
	if got, want := (<-said).Address, fmt.Sprintf("127.0.0.1:%d", first+1); got != want {
		t.Errorf("rank 0 listened on %s, want %s", got, want)
	}
}

// told is a Control that sends the address of its rank to said, before the other ranks look for the address.
type told struct {
	Control
	said chan endpoint
}

func (c told) Set(ctx context.Context, key string, value []byte) error {
	var p endpoint
	if json.Unmarshal(value, &p) == nil && p.Address != "" {
		c.said <- p
	}
	return c.Control.Set(ctx, key, value)
}

// late is a Control that delays the addresses of the other ranks until the attack is over.
type late struct {
	Control
	attacked chan struct{}
}

func (c late) Get(ctx context.Context, key string) ([]byte, error) {
	<-c.attacked
	return c.Control.Get(ctx, key)
}

// watched is a Control that closes began when its rank starts to wait. If known is set, the rank then waits for a
// connection, otherwise for an address.
type watched struct {
	Control
	began chan struct{}
	known bool
}

func (w watched) Get(ctx context.Context, key string) ([]byte, error) {
	if !w.known {
		close(w.began)
		return w.Control.Get(ctx, key)
	}
	value, err := w.Control.Get(ctx, key)
	close(w.began)
	return value, err
}

func (w watched) Set(ctx context.Context, key string, value []byte) error {
	err := w.Control.Set(ctx, key, value)
	if strings.HasSuffix(key, "/0") {
		close(w.began) // rank 0 now waits for the connection
	}
	return err
}

// meetOnce performs a barrier, and closes the communicators.
func meetOnce(t *testing.T, comms []*Communicator) {
	t.Helper()
	done := make(chan error, len(comms))
	for _, c := range comms {
		if err := c.Enqueue(collective.Barrier{}); err != nil {
			t.Fatal(err)
		}
		go func() { done <- errors.Join(c.Sync(t.Context()), c.Close()) }()
	}
	for range comms {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
