package train

import (
	"context"
	"fmt"
	"time"
)

// peers is nil for a run of one rank.
func (r *run) peers() *Peers { return r.Replica.opts.Peers }

// leads reports whether this rank saves.
func (r *run) leads() bool { return r.peers() == nil || r.peers().Grads.Rank() == 0 }

// own is what this rank wants by itself. Time is rank 0's affair.
func (r *run) own(ctx context.Context) wish {
	return wish{stop: ctx.Err() != nil, timeOver: r.MaxDuration > 0 && r.leads() && time.Since(r.start) >= r.MaxDuration}
}

// wishes are what ends the run before the next step. Ranks leave after the same step, so they do what they agreed on after the last.
func (r *run) wishes(ctx context.Context) wish {
	if r.peers() != nil {
		return r.asked
	}
	return r.own(ctx)
}

// split takes over the shares that the splitter decides.
func (r *run) split() error {
	if r.Splitter == nil || r.peers() == nil {
		return nil
	}
	shares := r.Splitter.Split(r.step, r.record.Ranks)
	if shares == nil {
		return nil
	}
	if err := r.Replica.SetShares(shares); err != nil {
		return fmt.Errorf("shares %v from step %d on: %w", shares, r.step+1, err)
	}
	reads := r.peers().reads()
	return r.Train.SetShare(r.position()*int64(r.Replica.opts.Accumulation), reads.Offset, reads.Count)
}

// share tells the other ranks of this one's part and learns of theirs.
func (r *run) share(ctx, whole context.Context, own RankStep) ([]RankStep, error) {
	if r.peers() == nil {
		r.alone[0] = own
		return r.alone[:], nil
	}
	all, asked, err := r.Replica.reports.exchange(whole, own, r.own(ctx))
	r.asked = asked
	return all, err
}

// total adds up the samples of all ranks, in their order.
func total(ranks []RankStep) (sum Sums) {
	for _, rank := range ranks {
		sum.Add(rank.Sums)
	}
	return sum
}
