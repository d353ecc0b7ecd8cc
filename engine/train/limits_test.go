package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// needs is the memory of a rank's replica: a fixed part, and the activations for each number of samples, both in bytes.
type needs struct {
	fixed int64
	arena []int64
}

// measure returns the needs of a rank, which has enough memory.
func measure(t *testing.T, o replica.Options, shares []int, sync bool) (n needs) {
	t.Helper()
	crew{open: openReference, options: o, shares: shares, sync: sync, cap: 200, dir: t.TempDir(),
		change: func(rank int, _ context.CancelFunc, o *Options, _ *recorder) {
			r := o.Replica
			if rank > 0 {
				return
			}
			for samples := range r.Options().MicroBatch() + 1 {
				f, err := r.Footprint(samples)
				if err != nil {
					t.Error(err)
					return
				}
				n.fixed, n.arena = f.Fixed(), append(n.arena, f.Arena)
			}
		}}.start(t)
	return n
}

// fixedBytes returns the memory of a replica that its share does not affect.
func fixedBytes(t *testing.T, r *replica.Replica) int64 {
	t.Helper()
	f, err := r.Footprint(1)
	if err != nil {
		t.Error(err)
	}
	return f.Fixed()
}

func TestLimitsAreTheMostThatFits(t *testing.T) {
	options := testOptions()
	options.Recompute = replica.RecomputeNever // with recomputation, more samples would fit
	plain, ghost, accumulated := options, options, options
	ghost.GhostGroup = 2
	plain.BatchSize, accumulated.BatchSize, accumulated.Accumulation = 13, 14, 2
	for _, c := range []struct {
		name    string
		options replica.Options
		sync    bool
		fit     int   // number of samples for which rank 1 has memory
		spare   int64 // additional memory, bytes
		want    []int
		shares  []int
	}{
		{"whole micro-batches", plain, true, 13, 0, []int{13, 13}, []int{7, 6}},
		{"a byte too few", plain, true, 13, -1, []int{13, 12}, []int{7, 6}},
		{"a few samples", plain, true, 5, 10, []int{13, 5}, []int{10, 3}},
		{"one", plain, true, 1, 0, []int{13, 1}, []int{12, 1}},
		{"none", plain, true, 1, -1, []int{13, 0}, []int{13, 0}},
		{"of accumulation", accumulated, true, 4, 0, []int{7, 4}, []int{3, 4}},
		{"groups", ghost, false, 5, 0, []int{6, 4}, []int{2, 4}},
		{"groups, and all of them", ghost, false, 6, 0, []int{6, 6}, []int{6, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			micro := c.options.MicroBatch()
			n := measure(t, c.options, []int{micro, 0}, c.sync)
			var told [2][]int
			cr := crew{open: openReference, options: c.options, shares: make([]int, 2), sync: c.sync, cap: 200,
				dir: t.TempDir(), peers: func(rank int, p *replica.Peers) {
					p.MaxShare, p.Shares = 0, nil
					if rank == 1 {
						p.MemoryBytes = n.fixed + n.arena[c.fit] + c.spare
					}
					p.Divide = func(limits []int) ([]int, error) {
						told[rank] = limits
						return c.shares, nil
					}
				}, change: func(rank int, _ context.CancelFunc, o *Options, _ *recorder) {
					if got, want := o.Replica.PredictedBytes()-fixedBytes(t, o.Replica),
						n.arena[max(c.want[rank], 0)]; got != max(want, 1) {
						t.Errorf("rank %d: reserved %d bytes for activations, want the %d of %d samples", rank, got,
							want,
							c.want[rank])
					}
					if got := o.Replica.Shares().Limits(); !slices.Equal(got, c.want) {
						t.Errorf("rank %d: limits are %v, want %v", rank, got, c.want)
					}
				}}
			ranks := cr.start(t)
			if !slices.Equal(told[0], c.want) || !slices.Equal(told[1], c.want) {
				t.Errorf("limits to divide by: got %v and %v, want %v", told[0], told[1], c.want)
			}
			follows(t, alone(t, c.options, openReference), ranks)
		})
	}
}

func TestSharesBeyondLimitsAreRefused(t *testing.T) {
	o := testOptions()
	n := measure(t, o, []int{testBatch, 0}, true)
	base := crew{open: openReference, options: o, shares: []int{2, 4}, sync: true, cap: 200}
	short := func(rank int, p *replica.Peers) {
		if rank == 1 {
			p.MemoryBytes = n.fixed + n.arena[3]
		}
	}
	t.Run("fixed ones", func(t *testing.T) {
		c := base
		c.dir, c.peers = t.TempDir(), short
		ranks := c.start(t)
		var memory *replica.MemoryError
		if err := ranks[1].err; !errors.As(err, &memory) || memory.Samples != 4 || memory.Fit != 3 ||
			memory.FreeBytes != n.arena[3] || !errors.Is(err, device.ErrOutOfMemory) {
			t.Errorf("rank 1: got %v, want a *replica.MemoryError of 4 samples where 3 fit", err)
		}
		if err := ranks[0].err; err == nil || !strings.Contains(err.Error(), "about 3 samples fit") {
			t.Errorf("rank 0: got %v, want the cause of rank 1", err)
		}
	})
	t.Run("more than all can hold", func(t *testing.T) {
		c := base
		c.dir, c.peers = t.TempDir(), func(rank int, p *replica.Peers) {
			short(rank, p)
			p.MaxShare = 2
			p.Divide = func(limits []int) ([]int, error) { return nil, fmt.Errorf("%v hold too little", limits) }
		}
		for rank, s := range c.start(t) {
			if s.err == nil ||
				!strings.Contains(s.err.Error(), "shares of a micro-batch of 6 samples: [2 2] hold too little") {
				t.Errorf("rank %d: got %v, want what Divide said", rank, s.err)
			}
		}
	})
	t.Run("those of a splitter", func(t *testing.T) {
		c := base
		c.dir, c.peers, c.shares = t.TempDir(), short, []int{4, 2}
		c.change = func(_ int, _ context.CancelFunc, o *Options, _ *recorder) { o.Splitter = once{2, []int{1, 5}} }
		for rank, s := range c.start(t) {
			if s.err == nil || !strings.Contains(s.err.Error(),
				"share of rank 1: got 5 samples, want at most the 3 that it can hold") {
				t.Errorf("rank %d: got %v, want the limit of rank 1", rank, s.err)
			}
		}
	})
}
