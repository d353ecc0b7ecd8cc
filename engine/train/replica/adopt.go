package replica

import (
	"context"
	"fmt"
)

// SetSamples sets the number of samples of each micro-batch from the next Step on. It is only for a replica without
// peers. The parameter n must not exceed the micro-batch of Options, and must be a multiple of the group size of batch
// normalisation. From then on, the caller passes batches of n samples to Step.
func (r *Replica) SetSamples(n int) error {
	if err := r.shares.SetSamples(n); err != nil {
		return err
	}
	if err := r.Discard(); err != nil {
		return err
	}
	return r.adopt()
}

// adopt switches the plans and the sums over ranks to the current shares. It compiles plans for this rank's share only
// if the cache does not contain them.
func (r *Replica) adopt() error {
	p, err := r.plans.acquire(r.shares.Own())
	if err != nil {
		return err
	}
	if r.sums != nil {
		if err := r.sums.SetShares(r.shares.All()); err != nil {
			r.plans.release(p)
			return err
		}
	}
	r.releasePart()
	r.plans.release(r.now)
	r.now = p
	return r.preparePart()
}

// SwitchShares makes the next shares the current ones, from the next Step on. The plans for this rank's next share must
// be ready. If a batch is staged, it has the samples of the old shares, and the caller discards it.
func (r *Replica) SwitchShares() error { return r.shares.Switch(r.adopt) }

// Regroup follows a change of the group (gradsync.Group.Change). From the next Step on, the replica trains with the
// ranks of the changed group, all of which must call Regroup. The parameter samples contains their shares. If a batch
// is staged, the caller discards it.
func (r *Replica) Regroup(ctx context.Context, samples []int) error {
	limits, err := r.gather(ctx, r.shares.Most())
	if err != nil {
		return fmt.Errorf("gather the limits of ranks: %w", err)
	}
	if err := r.shares.Regroup(r.group.Rank(), limits, samples); err != nil {
		return err
	}
	return r.adopt()
}
