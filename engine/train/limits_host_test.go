package train

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// hosts returns the options of two ranks that divide one memory limit. part.Bytes is the part of each rank. needs[n] is
// the host memory of a rank with n samples.
func hosts(t *testing.T) (o replica.Options, part *memory.Limit, needs []int64) {
	t.Helper()
	o = testOptions()
	o.Recompute = replica.RecomputeNever
	o.Host = &replica.Host{Limit: memory.Limit{Bytes: 1 << 40, Source: "the test", Ranks: 2}, Pool: "machine",
		Program: func() []memory.Part { return []memory.Part{{Name: replica.Program, Bytes: 1000}} }}
	crew{open: openReference, options: o, shares: []int{testBatch, 0}, sync: true, cap: 200, dir: t.TempDir(),
		change: func(rank int, _ context.CancelFunc, o *Options, _ *recorder) {
			for n := range testBatch + 1 {
				if rank > 0 {
					return
				}
				f, err := o.Replica.Footprint(n)
				if err != nil {
					t.Error(err)
				}
				needs = append(needs, f.Account.HostBytes())
			}
		}}.start(t)
	return o, &o.Host.Limit, needs
}

// If fixed shares are unequal, the ranks need unequal parts of the memory that they divide.
func TestFixedSharesMayNeedUnequalPartsOfTheMemory(t *testing.T) {
	o, part, needs := hosts(t)
	shares := []int{testBatch - 1, 1}
	sum := needs[shares[0]] + needs[shares[1]]
	c := crew{open: openReference, options: o, shares: shares, sync: true, cap: 200}
	part.Bytes = (sum + 1) / 2
	c.dir = t.TempDir()
	for rank, s := range c.start(t) {
		if s.err != nil {
			t.Errorf("both fit together, rank %d: got %v", rank, s.err)
		}
	}
	part.Bytes = (sum - 2) / 2
	c.dir = t.TempDir()
	var refused *replica.MemoryError
	if err := c.start(t)[0].err; !errors.As(err, &refused) || refused.Samples != shares[0] || refused.Account == nil ||
		refused.Account.HostBytes() != needs[shares[0]] {
		t.Errorf("a byte too few: got %v, want a refusal of the large share", err)
	}
}

// The limits of shares must leave memory for the cache. If they used all memory, the cache would get none, even though
// the first shares are smaller.
func TestLimitsLeaveRoomForOptionalMemory(t *testing.T) {
	o, part, needs := hosts(t)
	part.Bytes = needs[testBatch]
	o.Host.Optional = []memory.Part{{Name: "cache", Bytes: 1 << 20}}
	first := []int{testBatch / 2, testBatch - testBatch/2}
	divide := func([]int) ([]int, error) { return slices.Clone(first), nil }
	least := first[0] * 3 / 2
	crew{open: openReference, options: o, shares: make([]int, 2), sync: true, cap: 200, dir: t.TempDir(),
		peers: func(_ int, p *replica.Peers) { p.MaxShare, p.Shares, p.Divide, p.Preview = 0, nil, divide, divide },
		change: func(rank int, _ context.CancelFunc, o *Options, _ *recorder) {
			if got := o.Replica.Shares().Limits(); !slices.Equal(got, []int{least, least}) {
				t.Errorf("rank %d: limits are %v, want %d each", rank, got, least)
			}
			if got, want := o.Replica.Account().Optional[0].Bytes, needs[testBatch]-needs[least]; got != want {
				t.Errorf("rank %d: the cache got %d bytes, want %d", rank, got, want)
			}
		}}.start(t)
}

// If the ranks cannot hold a micro-batch, the error of each rank must contain the memory account of this rank.
func TestRanksThatCannotHoldABatchSayWhy(t *testing.T) {
	o, part, needs := hosts(t)
	part.Bytes = needs[2]
	cause := errors.New("no shares")
	ranks := crew{open: openReference, options: o, shares: make([]int, 2), sync: true, cap: 200, dir: t.TempDir(),
		peers: func(_ int, p *replica.Peers) {
			p.MaxShare, p.Shares = 0, nil
			p.Divide = func([]int) ([]int, error) { return nil, cause }
		}}.start(t)
	for rank, s := range ranks {
		var refused *replica.MemoryError
		if !errors.As(s.err, &refused) || !errors.Is(s.err, cause) || !errors.Is(s.err, device.ErrOutOfMemory) ||
			refused.Fit != 2 || refused.Account == nil || !strings.Contains(s.err.Error(), "this rank holds at most 2") {
			t.Errorf("rank %d: got %v", rank, s.err)
		}
	}
}

// Under a limit of addresses, the error also names the limit with which the ranks hold the micro-batch, and the next
// process may reserve more addresses.
func TestRanksThatCannotHoldABatchNameTheLimitOfAddresses(t *testing.T) {
	o, part, needs := hosts(t)
	part.Bytes, part.Addresses, part.Flag, part.Excluded = needs[2], true, "-d", 1<<20
	limit := *part
	ranks := crew{open: openReference, options: o, shares: make([]int, 2), sync: true, cap: 200, dir: t.TempDir(),
		peers: func(_ int, p *replica.Peers) {
			p.MaxShare, p.Shares = 0, nil
			p.Divide = func([]int) ([]int, error) { return nil, errors.New("no shares") }
		}}.start(t)
	want := limit.Raise(needs[testBatch/2+1]) // limits are rounded down to whole samples
	for rank, s := range ranks {
		var refused *replica.MemoryError
		if !errors.As(s.err, &refused) || refused.Fit != 0 || refused.Samples != testBatch/2+1 ||
			!strings.HasSuffix(s.err.Error(), "; "+want) ||
			!strings.Contains(s.err.Error(), "the next start of this rank may hold only 0 samples") {
			t.Errorf("rank %d: got %v, want: %s", rank, s.err, want)
		}
	}
}
