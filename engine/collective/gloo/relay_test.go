//go:build cgo && linux

package gloo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
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

// eavesdropper forwards connections to a rank, and may change a byte.
type eavesdropper struct {
	t      *testing.T
	damage atomic.Bool  // changes one byte of the next piece to the rank
	most   atomic.Int64 // number of bytes after which it stops reading; 0: no limit

	mu    sync.Mutex
	heard bytes.Buffer
}

// carry serves one connection to the rank.
func (e *eavesdropper) carry(near, far net.Conn) {
	go e.pass(far, near, true)
	go e.pass(near, far, false)
}

func (e *eavesdropper) pass(to, from net.Conn, towards bool) {
	defer to.Close()
	piece := make([]byte, 8<<10)
	for {
		n, err := from.Read(piece)
		e.mu.Lock()
		e.heard.Write(piece[:n])
		passed := int64(e.heard.Len())
		e.mu.Unlock()
		if most := e.most.Load(); most > 0 && passed > most {
			<-e.t.Context().Done()
			return
		}
		if n > 100 && towards && e.damage.CompareAndSwap(true, false) {
			piece[n/2] ^= 1
		}
		if _, writeErr := to.Write(piece[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// If gradients are encrypted, a man in the middle must not be able to read them. If he changes a bit, both ranks must
// return an error, and no sum may contain the change.
func TestEncryptedGradients(t *testing.T) {
	need(t)
	pattern := bytes.Repeat([]byte{0x42, 0xde, 0xc0, 0x5e}, 16) // encrypted bytes contain no such repetition
	for name, encrypt := range map[string]bool{"plain": false, "encrypted": true} {
		t.Run(name, func(t *testing.T) {
			_, ranks := configs(seat)
			between := &eavesdropper{t: t}
			ranks[0].Control = through{ranks[0].Control, t, between.carry}
			comms := collectivetest.Connected(t, 2, func(ctx context.Context, rank int) (*Communicator, error) {
				c := ranks[rank]
				c.Encrypt, c.Timeout = encrypt, time.Minute
				return Connect(ctx, c)
			})
			sum := func() []error {
				errs := make([]error, 2)
				var done sync.WaitGroup
				for rank, c := range comms {
					m, err := reference.New().Alloc(1 << 20)
					if err != nil {
						t.Fatal(err)
					}
					copy(m.Host(), bytes.Repeat(pattern, 1<<20/len(pattern)))
					done.Go(func() {
						errs[rank] = errors.Join(c.Enqueue(collective.AllGather{Name: "words", Buffer: device.Whole(m),
							DType: tensor.F32, Counts: []int64{1 << 17, 1 << 17}}), c.Sync(t.Context()))
						if errs[rank] == nil && !bytes.Equal(m.Host(), bytes.Repeat(pattern, 1<<20/len(pattern))) {
							t.Errorf("rank %d: got other bytes than were sent", rank)
						}
					})
				}
				done.Wait()
				return errs
			}
			if err := errors.Join(sum()...); err != nil {
				t.Fatal(err)
			}
			between.mu.Lock()
			heard := bytes.Contains(between.heard.Bytes(), pattern)
			between.mu.Unlock()
			if heard == encrypt {
				t.Errorf("the pattern was on the wire: %v, want %v", heard, !encrypt)
			}
			if encrypt {
				between.damage.Store(true)
				for rank, err := range sum() {
					var peer *collective.PeerError
					if !errors.As(err, &peer) {
						t.Errorf("rank %d: got %v, want the loss of the other rank", rank, err)
					}
					if rank == 0 && !strings.Contains(err.Error(), "bytes changed between the machines") {
						t.Errorf("got %v, want the cause", err)
					}
				}
			}
			for _, c := range comms {
				if err := c.Close(); err != nil && !errors.Is(err, io.EOF) {
					t.Log(err) // the communicator has failed, so Close may return an error
				}
			}
		})
	}
}

// Close must return even if a rank is stopped or the network is broken. In this test, the send buffers of all sockets
// are full.
func TestCloseEndsAlthoughTheNetworkIsFrozen(t *testing.T) {
	need(t)
	_, ranks := configs(seat)
	between := &eavesdropper{t: t}
	ranks[0].Control = through{ranks[0].Control, t, between.carry}
	comms := collectivetest.Connected(t, 2, func(ctx context.Context, rank int) (*Communicator, error) {
		c := ranks[rank]
		c.Encrypt, c.Timeout = true, 500*time.Millisecond
		return Connect(ctx, c)
	})
	between.most.Store(4 << 20)
	const bytes = 128 << 20 // more than the buffers of the sockets hold
	ended := make(chan error)
	for _, c := range comms {
		m, err := reference.New().Alloc(bytes)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			err := errors.Join(c.Enqueue(collective.AllGather{Name: "words", Buffer: device.Whole(m), DType: tensor.F32,
				Counts: []int64{bytes / 8, bytes / 8}}), c.Sync(t.Context()))
			_ = c.Close() // the group has failed
			ended <- err
		}()
	}
	for range comms {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("got no error of a frozen network")
			}
		case <-time.After(time.Minute): // an error in Close would make it wait for ever
			t.Fatal("Close has not returned")
		}
	}
}
