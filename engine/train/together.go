package train

import (
	"context"
	"fmt"
	"time"
)

// peers is nil for a run of one rank.
func (r *run) peers() *Peers { return r.Replica.opts.Peers }

// rank is this one's number.
func (r *run) rank() int {
	if p := r.peers(); p != nil {
		return p.Grads.Rank()
	}
	return 0
}

// leads reports whether this rank saves.
func (r *run) leads() bool { return r.rank() == 0 }

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
	shares := r.Splitter.Split(r.step, r.reported)
	if shares == nil {
		return nil
	}
	if err := r.Replica.SetShares(shares); err != nil {
		return fmt.Errorf("shares %v from step %d on: %w", shares, r.step+1, err)
	}
	reads := r.peers().reads()
	return r.Train.SetShare(r.position()*int64(r.Replica.opts.Accumulation), reads.Offset, reads.Count)
}

// sum sums the gradient over ranks. With it every rank learns of every other's part of the step, and of what it wants.
func (r *run) sum(ctx, whole context.Context, own *RankStep, out *StepResult) error {
	if r.peers() == nil {
		r.reported = append(r.reported[:0], *own)
		return nil
	}
	told := *own // what is not known yet is that of the step before
	told.Times.Communication, told.Times.Hidden, told.Times.Optimizer = r.before.Communication, r.before.Hidden, r.before.Optimizer
	x := r.Replica.reports
	x.put(&told, r.own(ctx))
	if err := r.Replica.sumOverRanks(whole, out, x.op); err != nil {
		return err
	}
	all, asked := x.read()
	r.reported, r.asked = append(r.reported[:0], all...), asked // evaluations report in the same place
	return nil
}

// together is the parts of all ranks in a step that is done: this one's as it measured it, the others' as they reported them.
func (r *run) together(own RankStep, out *StepResult) []RankStep {
	r.before, own.Times, own.Buckets, own.Bytes = out.Times, out.Times, out.Buckets, out.Bytes
	r.ranks = append(r.ranks[:0], r.reported...)
	for i := range r.ranks {
		r.ranks[i].Buckets, r.ranks[i].Bytes = out.Buckets, out.Bytes // the same on all
	}
	r.ranks[r.rank()] = own
	return r.ranks
}

// evaluated is all ranks' parts of a batch of an evaluation.
func (r *run) evaluated(ctx, whole context.Context, own Sums) ([]RankStep, error) {
	if r.peers() == nil {
		r.alone[0].Sums = own
		return r.alone[:], nil
	}
	all, asked, err := r.Replica.reports.exchange(whole, RankStep{Sums: own}, r.own(ctx))
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
