package shares

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/hetero-train/hetero-train/engine/data"
)

// Rules are the conditions that all shares of a run must satisfy.
type Rules struct {
	Rank  int // number of this rank
	Ranks int // number of ranks
	Batch int // samples of a micro-batch; the shares sum to it
	// no share splits a group of this many samples, except the last group of the micro-batch; 0 and 1: no groups
	Unit int
}

// Check returns an error if the shares do not satisfy the rules.
func (r Rules) Check(samples []int) error {
	if len(samples) != r.Ranks {
		return fmt.Errorf("replica: got %d shares, want one for each of %d ranks", len(samples), r.Ranks)
	}
	sum := 0
	for rank, n := range samples {
		if n < 0 {
			return fmt.Errorf("replica: share of rank %d: got %d samples, want 0 or more", rank, n)
		}
		if sum += n; r.Unit > 1 && n%r.Unit != 0 && sum != r.Batch {
			return fmt.Errorf("replica: share of rank %d: got %d samples, want a multiple of %d (the batch-norm group size, model.ghost_group)",
				rank, n, r.Unit)
		}
	}
	if sum != r.Batch {
		return fmt.Errorf("replica: shares %v hold %d samples, want the %d of a micro-batch", samples, sum, r.Batch)
	}
	return nil
}

// Owner holds the shares of all ranks. Only the goroutine that trains may use it.
type Owner struct {
	rules   Rules
	alone   bool  // a single rank; it may train fewer samples than the micro-batch has
	limits  []int // largest share of each rank
	current []int
	version int     // number of times that the current shares were set
	next    *change // nil if no change is in progress
}

// change is a change of shares in progress. All ranks switch at the same step, after each rank has plans for its new
// share.
type change struct {
	samples []int
	hash    uint32 // never 0
	own     Plans
	ready   bool
}

// Plans are the plans of this rank for a share, which may still be compiling.
type Plans interface {
	// Ready reports, without blocking, whether the plans can run. If they cannot be compiled, it returns an error.
	Ready() (bool, error)
	// Release is called once the change is over.
	Release()
}

// New returns an owner whose first shares are not known yet. The parameter limits contains the largest share of each
// rank.
func New(rules Rules, limits []int) *Owner {
	return &Owner{rules: rules, limits: slices.Clone(limits)}
}

// Alone returns the owner of a run of one rank, whose share is the whole micro-batch.
func Alone(batch, unit int) *Owner {
	return &Owner{rules: Rules{Ranks: 1, Batch: batch, Unit: unit}, alone: true, limits: []int{batch},
		current: []int{batch}}
}

// Check returns an error for shares that the ranks cannot train with.
func (o *Owner) Check(samples []int) error {
	if o.alone {
		return fmt.Errorf("replica: got shares %v, want no shares, because the run has one rank", samples)
	}
	if err := o.rules.Check(samples); err != nil {
		return err
	}
	for rank, n := range samples {
		if n > o.limits[rank] {
			return fmt.Errorf("replica: share of rank %d: got %d samples, want at most the %d that it can hold", rank,
				n, o.limits[rank])
		}
	}
	return nil
}

// Set sets the current shares. All ranks pass the same ones.
func (o *Owner) Set(samples []int) error {
	if err := o.Check(samples); err != nil {
		return err
	}
	o.set(slices.Clone(samples))
	return nil
}

func (o *Owner) set(samples []int) {
	o.current = samples
	o.version++
}

// Version returns a number that grows with each change of the current shares. Users of the shares compare it to find
// out whether they must follow.
func (o *Owner) Version() int { return o.version }

// Regroup sets the ranks that train from the next step on, and their shares, after a change of the group
// (gradsync.Group.Change). The parameter rank is the number of this rank, and limits contains the largest share of each
// rank. No change of shares may be in progress. All ranks pass the same limits and shares.
func (o *Owner) Regroup(rank int, limits, samples []int) error {
	if o.alone || o.next != nil {
		return errors.New("replica: the ranks can only change if no change of shares is in progress, and not in a run without a group")
	}
	next := *o
	next.rules.Rank, next.rules.Ranks, next.limits = rank, len(limits), slices.Clone(limits)
	if err := next.Set(samples); err != nil {
		return err
	}
	*o = next
	return nil
}

// SetSamples sets the samples that a run of one rank trains.
func (o *Owner) SetSamples(n int) error {
	switch most, unit := o.rules.Batch, max(o.rules.Unit, 1); {
	case !o.alone:
		return fmt.Errorf("replica: got %d samples of one rank, want the shares of all %d ranks", n, o.rules.Ranks)
	case n < 1 || n > most || n%unit != 0:
		return fmt.Errorf("replica: got %d samples of a micro-batch, want 1 to %d, in multiples of %d", n, most, unit)
	}
	o.set([]int{n})
	return nil
}

// All returns the current shares by rank, or nil in a run of one rank. The caller must not change them.
func (o *Owner) All() []int {
	if o.alone {
		return nil
	}
	return o.current
}

// Whole returns the number of samples of a micro-batch with the current shares.
func (o *Owner) Whole() (total int) {
	for _, n := range o.current {
		total += n
	}
	return total
}

// Within returns the shares of a micro-batch with only total samples: each rank gets the existing positions of its
// current share.
func (o *Owner) Within(total int) []int {
	return Within(o.current, total)
}

// Within returns the part of each share in samples that the first total samples of a micro-batch fill.
func Within(samples []int, total int) []int {
	out := slices.Clone(samples)
	for rank, n := range out {
		out[rank] = min(n, total)
		total -= out[rank]
	}
	return out
}

// OwnWithin returns this rank's share in a micro-batch with only total samples; see Within.
func (o *Owner) OwnWithin(total int) int { return o.Within(total)[o.rules.Rank] }

// Own returns the current share of this rank, in samples of a micro-batch.
func (o *Owner) Own() int { return o.current[o.rules.Rank] }

// Part returns the part of each micro-batch that this rank's loaders read.
func (o *Owner) Part() data.Share {
	s := data.Share{Count: o.Own()}
	for _, n := range o.current[:o.rules.Rank] {
		s.Offset += n
	}
	return s
}

// Most returns the largest share that this rank may get.
func (o *Owner) Most() int { return o.limits[o.rules.Rank] }

// Limits returns the largest share of each rank, or nil in a run of one rank.
func (o *Owner) Limits() []int {
	if o.alone {
		return nil
	}
	return o.limits
}

// Propose begins a change to other shares. The function prepare must start to compile plans for this rank's next share,
// while training continues with the current shares. Shares that equal the current ones begin no change.
func (o *Owner) Propose(samples []int, prepare func(samples []int) Plans) error {
	if slices.Equal(samples, o.current) {
		return nil
	}
	if o.next != nil {
		return errors.New("replica: a change of shares is already in progress")
	}
	if err := o.Check(samples); err != nil {
		return err
	}
	samples = slices.Clone(samples)
	o.next = &change{samples: samples, hash: Hash(samples), own: prepare(samples)}
	return nil
}

// Next returns the shares to which the ranks will switch, or nil if no change is in progress.
func (o *Owner) Next() []int {
	if o.next == nil {
		return nil
	}
	return o.next.samples
}

// Vote returns this rank's part of the agreement on a change: whether its plans are not ready, and the hash of the next
// shares, which must be equal on all ranks. The hash is 0 if no change is in progress. If the plans cannot be compiled,
// Vote returns an error, which ends the run.
func (o *Owner) Vote() (unready bool, hash uint32, err error) {
	c := o.next
	if c == nil {
		return false, 0, nil
	}
	if !c.ready {
		if c.ready, err = c.own.Ready(); err != nil {
			err = fmt.Errorf("prepare shares %v: plan rank %d for %d samples: %w", c.samples, o.rules.Rank,
				c.samples[o.rules.Rank], err)
		}
	}
	return !c.ready, c.hash, err
}

// Switch makes the next shares the current ones. The caller calls it on all ranks before the same step, once no rank
// votes unready. The function adopt must apply the shares in the code that uses them. Switch releases the plans after
// this call.
func (o *Owner) Switch(adopt func() error) error {
	c := o.next
	o.next = nil
	o.set(c.samples)
	defer c.own.Release()
	return adopt()
}

// Hash returns a hash of shares that is never 0. Different shares rarely have equal hashes.
func Hash(samples []int) uint32 {
	h := fnv.New32a()
	for _, n := range samples {
		fmt.Fprintf(h, "%d ", n)
	}
	return max(h.Sum32(), 1)
}

// Disagreement returns the error for a rank whose shares differ from those of rank 0.
func Disagreement(rank int) error {
	return fmt.Errorf("rank %d and rank 0 computed different shares, because their CPUs or their builds of the program round differently: set balance.fixed_shares, or balance.policy = \"none\"",
		rank)
}
