//go:build cgo && linux

package gloo

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// wire forwards TCP connections and simulates a bad network. It simulates lost packets by pauses, because TCP sends
// lost packets again.
type wire struct {
	mu    sync.Mutex
	pause func() time.Duration // returns the pause before each piece; nil: no pause
	cut   [2]bool              // by direction (0: towards the target): whether bytes are held back
	open  *sync.Cond           // signals that a cut has ended
	conns []*net.TCPConn
}

func newWire(t *testing.T) *wire {
	t.Helper()
	w := new(wire)
	w.open = sync.NewCond(&w.mu)
	t.Cleanup(func() {
		w.set(func() { w.cut = [2]bool{} })
		w.each(func(c *net.TCPConn) { c.Close() })
	})
	return w
}

// carry serves a connection to the rank behind the wire.
func (w *wire) carry(near, far net.Conn) {
	w.set(func() { w.conns = append(w.conns, near.(*net.TCPConn), far.(*net.TCPConn)) })
	go w.pass(far, near, 0)
	go w.pass(near, far, 1)
}

func (w *wire) pass(to, from net.Conn, direction int) {
	defer to.Close()
	piece := make([]byte, 8<<10)
	for {
		n, err := from.Read(piece)
		w.mu.Lock()
		for w.cut[direction] {
			w.open.Wait()
		}
		pause := w.pause
		w.mu.Unlock()
		if pause != nil {
			time.Sleep(pause())
		}
		if _, writeErr := to.Write(piece[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

func (w *wire) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	w.open.Broadcast()
}

func (w *wire) each(f func(*net.TCPConn)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		f(c)
	}
}

// overWire connects two ranks through a wire. The returned function sums 1 MiB over both ranks, once.
func overWire(t *testing.T, limit time.Duration) (*wire, []*Communicator, func() []error) {
	t.Helper()
	_, ranks := configs(seat)
	w := newWire(t)
	ranks[0].Control = through{ranks[0].Control, t, w.carry}
	comms := collectivetest.Connected(t, 2, func(ctx context.Context, rank int) (*Communicator, error) {
		c := ranks[rank]
		c.Timeout = limit
		return Connect(ctx, c)
	})
	memory := make([]device.Buffer, 2)
	for rank := range memory {
		m, err := reference.New().Alloc(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		clear(m.Host())
		memory[rank] = m
	}
	return w, comms, func() []error {
		errs := make([]error, len(comms))
		var done sync.WaitGroup
		for rank, c := range comms {
			done.Go(func() {
				if errs[rank] = c.Enqueue(collective.AllReduce{Name: "sum", Buffer: device.Whole(memory[rank]),
					DType: tensor.F32}); errs[rank] == nil {
					errs[rank] = c.Sync(t.Context())
				}
			})
		}
		done.Wait()
		return errs
	}
}

func closeAll(t *testing.T, comms []*Communicator) {
	t.Helper()
	for _, c := range comms {
		if err := c.Close(); err != nil && !errors.Is(err, io.EOF) {
			t.Log(err) // the communicator has failed, so Close may return an error
		}
	}
}

// Delays, partitions that heal, and the pauses of lost packets must only cost time.
func TestABadNetwork(t *testing.T) {
	need(t)
	for name, disturb := range map[string]func(*wire){
		"a delay of 2 ms": func(w *wire) { w.pause = func() time.Duration { return 2 * time.Millisecond } },
		"one packet of 20 lost": func(w *wire) {
			var mu sync.Mutex
			random := rand.New(rand.NewPCG(1, 2))
			w.pause = func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				if random.IntN(20) == 0 {
					return 20 * time.Millisecond
				}
				return 0
			}
		},
		"a partition that heals":         func(w *wire) { w.cut = [2]bool{true, true} },
		"a one-way partition that heals": func(w *wire) { w.cut[1] = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, comms, sum := overWire(t, time.Minute)
			w.set(func() { disturb(w) })
			go func() {
				time.Sleep(200 * time.Millisecond)
				w.set(func() { w.cut = [2]bool{} })
			}()
			for range 3 {
				if err := errors.Join(sum()...); err != nil {
					t.Fatal(err)
				}
			}
			closeAll(t, comms)
		})
	}
}

// A partition in one direction or in both must cause a time-out. A reset must cause an immediate error. No rank may
// hang, and both ranks must report the fault.
func TestANetworkThatBreaks(t *testing.T) {
	need(t)
	for name, disturb := range map[string]func(*wire){
		"a partition":                    func(w *wire) { w.cut = [2]bool{true, true} },
		"nothing reaches rank 0":         func(w *wire) { w.cut[0] = true },
		"nothing reaches rank 1":         func(w *wire) { w.cut[1] = true },
		"the connections are reset":      nil,
		"a reset in the middle of a sum": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, comms, sum := overWire(t, time.Second)
			if err := errors.Join(sum()...); errors.As(err, new(*collective.TimeoutError)) {
				// the machine is too busy for this time limit
				t.Log(err)
				closeAll(t, comms)
				w, comms, sum = overWire(t, time.Minute)
				if err := errors.Join(sum()...); err != nil {
					t.Fatal(err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			reset := func() {
				w.each(func(c *net.TCPConn) {
					_ = c.SetLinger(0)
					c.Close()
				})
			}
			switch {
			case disturb != nil:
				w.set(func() { disturb(w) })
			case name == "the connections are reset":
				reset()
			default:
				// A sum has 128 pieces in each direction. Pieces after the tear wait for the reset.
				var pieces atomic.Int64
				torn := make(chan struct{})
				w.set(func() {
					w.pause = func() time.Duration {
						switch n := pieces.Add(1); {
						case n == 16:
							reset()
							close(torn)
						case n > 16:
							<-torn
						}
						return 0
					}
				})
			}
			for rank, err := range sum() {
				var late *collective.TimeoutError
				var peer *collective.PeerError
				if !errors.As(err, &late) && !errors.As(err, &peer) {
					t.Errorf("rank %d: got %v, want a time-out or the loss of the other rank", rank, err)
				}
			}
			closeAll(t, comms)
		})
	}
}
