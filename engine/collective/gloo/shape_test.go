//go:build cgo && linux

package gloo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// everyOp returns small operations of every kind, and some larger ones, for groups of size ranks. Each operation has
// its own part of the buffer.
func everyOp(size int) (ops []func(device.Region) collective.Op, elements []int) {
	add := func(n int, f func(device.Region) collective.Op) { ops, elements = append(ops, f), append(elements, n) }
	counts, total := make([]int64, size), int64(0)
	for rank := range counts {
		counts[rank] = int64((7*rank + 3) % 11)
		total += counts[rank]
	}
	for _, n := range []int{1, 17, 450, 5000} { // the last size is not small in any shape
		add(n, func(m device.Region) collective.Op { return collective.AllReduce{Buffer: m, DType: tensor.F32} })
	}
	add(33, func(m device.Region) collective.Op { return collective.Broadcast{Buffer: m, Root: size - 1} })
	add(33, func(m device.Region) collective.Op { return collective.Broadcast{Buffer: m, Root: size / 2} })
	add(int(total), func(m device.Region) collective.Op {
		return collective.AllGather{Buffer: m, DType: tensor.F32, Counts: counts}
	})
	add(int(total), func(m device.Region) collective.Op {
		return collective.ReduceScatter{Buffer: m, DType: tensor.F32, Counts: counts}
	})
	add(0, func(device.Region) collective.Op { return collective.Barrier{} })
	return ops, elements
}

// results runs the operations. It returns the bytes that the contract defines, by operation and rank.
func results(t *testing.T, comms []*Communicator) (all [][][]byte) {
	t.Helper()
	size := len(comms)
	ops, elements := everyOp(size)
	for i, op := range ops {
		out := make([][]byte, size)
		var done sync.WaitGroup
		for rank, c := range comms {
			done.Go(func() {
				memory, err := reference.New().Alloc(int64(4 * elements[i]))
				if err != nil {
					t.Error(err)
					return
				}
				rng := rand.New(rand.NewPCG(uint64(i), uint64(rank)))
				host := memory.Host()
				for at := 0; at < len(host); at += 4 {
					value := float32(rng.NormFloat64() * math.Pow(2, float64(rng.IntN(16))))
					binary.LittleEndian.PutUint32(host[at:], math.Float32bits(value))
				}
				one := op(device.Whole(memory))
				if err := errors.Join(c.Enqueue(one), c.Sync(t.Context())); err != nil {
					t.Errorf("rank %d: %v: %v", rank, collective.Describe(one), err)
				}
				out[rank] = host
				if one, ok := one.(collective.ReduceScatter); ok {
					from := int64(0)
					for _, n := range one.Counts[:rank] {
						from += 4 * n
					}
					out[rank] = host[from : from+4*one.Counts[rank]]
				}
			})
		}
		done.Wait()
		if t.Failed() {
			t.FailNow()
		}
		if i < 7 { // all ranks must have the same result
			for rank := range out {
				if !bytes.Equal(out[rank], out[0]) {
					t.Fatalf("%d ranks, operation %d: rank %d has other bits than rank 0", size, i, rank)
				}
			}
		}
		all = append(all, out)
	}
	return all
}

// All shapes add in the order of ranks. The ranks choose a shape by measured times, so results must not depend on it.
func TestShapesGiveTheSameBits(t *testing.T) {
	need(t)
	for _, size := range []int{2, 3, 5, 8, 13} {
		comms, _ := shaped(t, size, 0, false, &Shape{Bytes: 0})
		want := results(t, comms)
		closeAll(t, comms)
		for _, s := range []Shape{{0, 4096}, {2, 4096}, {3, 4096}, {4, 1800}, {8, 60}, {size, 4096}} {
			if s.Radix > size {
				continue
			}
			comms, _ := shaped(t, size, 0, false, &s)
			got := results(t, comms)
			closeAll(t, comms)
			for i := range want {
				for rank := range want[i] {
					if !bytes.Equal(got[i][rank], want[i][rank]) {
						t.Errorf("%d ranks, %v: operation %d, rank %d: other bits than without small operations", size,
							s, i, rank)
					}
				}
			}
		}
	}
}

// The ranks must choose the same shape by measured times. Operations of all sizes must work with this shape.
func TestRanksChooseOneShape(t *testing.T) {
	need(t)
	for _, size := range []int{2, 3, 9, 24} {
		comms, _ := shaped(t, size, time.Minute, false, nil)
		for rank, c := range comms {
			if s := c.Shape(); s != comms[0].Shape() || s.Bytes <= 0 || s.Bytes > maxTreeBytes && s.Radix > 0 {
				t.Errorf("%d ranks: rank %d has %v, rank 0 %v", size, rank, s, comms[0].Shape())
			}
		}
		results(t, comms)
		chosen := comms[0].Shape()
		closeAll(t, comms)
		comms, _ = shaped(t, size, time.Minute, false, &chosen) // a second group of the same ranks
		results(t, comms)
		closeAll(t, comms)
	}
}

func TestThresholdOfATree(t *testing.T) {
	for _, c := range []struct {
		name                 string
		small, large, direct float64
		want                 int64
	}{
		{"direct messages are slow", 1e-3, 5e-3, 20e-3, maxTreeBytes},
		{"bytes at the top of the tree are slow", 1e-3, 31e-3, 4e-3, 4 << 10},
		{"a slow network", 1e-3, 500e-3, 1e-3, 1 << 10},
		{"noise: the large operation was faster", 2e-3, 1e-3, 3e-3, maxTreeBytes},
	} {
		if got := threshold(c.small, c.large, c.direct); got != c.want {
			t.Errorf("%s: got %d bytes, want %d", c.name, got, c.want)
		}
	}
}

// In a tree of seven ranks, the children of rank 0 are 1, 2 and 4. The child of rank 2 is 3, and the children of rank 4
// are 5 and 6. Ranks that are not neighbours of a faulty rank must also name it. The cases mostly wait, so they run in
// parallel.
func TestFaultsBelowATree(t *testing.T) {
	need(t)
	const size = 7
	sum := func(t *testing.T, c *Communicator, n int64) error {
		memory, err := reference.New().Alloc(4 * n)
		if err != nil {
			t.Error(err)
			return err
		}
		clear(memory.Host())
		return errors.Join(c.Enqueue(collective.AllReduce{Name: "sum", Buffer: device.Whole(memory),
			DType: tensor.F32}), c.Sync(t.Context()))
	}
	// each runs f concurrently on all ranks but one.
	each := func(comms []*Communicator, except int, f func(rank int, c *Communicator)) {
		var done sync.WaitGroup
		for rank, c := range comms {
			if rank != except {
				done.Go(func() { f(rank, c) })
			}
		}
		done.Wait()
	}
	for _, faulty := range []int{0, 3, 4, 6} {
		for name, reported := range map[string]bool{"rank %d dies": true,
			"the connections of rank %d break, and Control reports nothing": false} {
			t.Run(fmt.Sprintf(name, faulty), func(t *testing.T) {
				t.Parallel()
				comms, board := shaped(t, size, 0, false, &Shape{Radix: 2, Bytes: 4096})
				go func() {
					time.Sleep(30 * time.Millisecond)
					comms[faulty].Die()
					if reported {
						board.Lose(faulty, collective.ErrDied)
					} else {
						comms[faulty].transport.conn.disconnect()
					}
				}()
				each(comms, faulty, func(rank int, c *Communicator) {
					var peer *collective.PeerError
					if err := sum(t, c, 5); !errors.As(err, &peer) || peer.Rank != faulty {
						t.Errorf("rank %d: got %v, want that rank %d died", rank, err, faulty)
					}
				})
				closeAll(t, comms)
			})
		}
		t.Run(fmt.Sprintf("rank %d does not enter", faulty), func(t *testing.T) {
			t.Parallel()
			var names []int
			for _, limit := range []time.Duration{400 * time.Millisecond, 4 * time.Second, 40 * time.Second} {
				comms, _ := shaped(t, size, limit, false, &Shape{Radix: 2, Bytes: 4096})
				var mu sync.Mutex
				names = nil
				each(comms, faulty, func(rank int, c *Communicator) {
					err := sum(t, c, 5)
					var late *collective.TimeoutError
					if !errors.As(err, &late) {
						t.Errorf("rank %d: got %v, want a TimeoutError", rank, err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					for _, rank := range late.Missing {
						if !slices.Contains(names, rank) {
							names = append(names, rank)
						}
					}
				})
				closeAll(t, comms)
				if t.Failed() || slices.Equal(names, []int{faulty}) {
					return
				}
			}
			t.Errorf("got the missing ranks %v, want only rank %d", names, faulty)
		})
		t.Run(fmt.Sprintf("rank %d has another operation", faulty), func(t *testing.T) {
			t.Parallel()
			comms, _ := shaped(t, size, time.Minute, false, &Shape{Radix: 2, Bytes: 4096})
			var found sync.Map
			each(comms, -1, func(rank int, c *Communicator) {
				n := int64(5)
				if rank == faulty {
					n = 1 << 16 // larger than any small operation
				}
				err := sum(t, c, n)
				var mismatch *collective.MismatchError
				var peer *collective.PeerError
				switch {
				case errors.As(err, &peer): // another rank detected the fault first
				case !errors.As(err, &mismatch):
					t.Errorf("rank %d: got %v, want a MismatchError or what another rank found", rank, err)
				default:
					found.Store(rank, true)
					if (mismatch.Rank == faulty) == (rank == faulty) || mismatch.Got == mismatch.Want {
						t.Errorf("rank %d: got %v, want that rank %d differs", rank, err, faulty)
					}
				}
			})
			seen := false
			found.Range(func(_, _ any) bool { seen = true; return false })
			if !seen {
				t.Error("no rank has a MismatchError")
			}
			closeAll(t, comms)
		})
	}
}
