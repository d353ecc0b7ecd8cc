package train

import (
	"context"
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

// own is what this rank wants by itself. Time is rank 0's affair. The error is that of plans for other shares.
func (r *run) own(ctx context.Context) (wish, error) {
	w := wish{stop: ctx.Err() != nil, timeOver: r.MaxDuration > 0 && r.leads() && time.Since(r.start) >= r.MaxDuration,
		save: r.requests() > r.answered}
	if r.change == nil {
		return w, nil
	}
	err := r.change.poll(r.rank())
	w.unready, w.change = r.change.own == nil, r.change.hash
	return w, err
}

// wishes are what ends the run before the next step. Ranks leave after the same step, so they do what they agreed on after the last.
func (r *run) wishes(ctx context.Context) wish {
	if r.peers() != nil {
		return r.asked
	}
	w, _ := r.own(ctx) // without other ranks no shares change
	return w
}

// sum sums the gradient over ranks. With it every rank learns of every other's part of the step, and of what it wants.
func (r *run) sum(ctx, whole context.Context, own *RankStep, out *StepResult) error {
	told := *own // what is not known yet is that of the step before
	told.Times.Communication, told.Times.Hidden, told.Times.Optimizer = r.before.Communication, r.before.Hidden, r.before.Optimizer
	want, err := r.own(ctx)
	if err != nil {
		return err
	}
	x := r.Replica.reports
	x.put(&told, want)
	if err := r.Replica.sumOverRanks(whole, out, x.op); err != nil {
		return err
	}
	all, asked, err := x.read()
	r.reported, r.asked = append(r.reported[:0], all...), asked // evaluations report in the same place
	return err
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
func (r *run) evaluated(ctx, whole context.Context, own RankStep) ([]RankStep, error) {
	if r.peers() == nil {
		r.alone[0].Sums, r.alone[0].Replaced = own.Sums, own.Replaced
		return r.alone[:], nil
	}
	want, err := r.own(ctx)
	if err != nil {
		return nil, err
	}
	all, asked, err := r.Replica.reports.exchange(whole, own, want)
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
