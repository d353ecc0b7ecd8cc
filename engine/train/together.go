package train

import (
	"context"
	"time"
)

// peers returns the connections to other ranks, or nil for a single rank.
func (r *run) peers() *Peers { return r.Replica.opts.Peers }

// rank returns the number of this rank.
func (r *run) rank() int {
	if p := r.peers(); p != nil {
		return p.Grads.Rank()
	}
	return 0
}

// leads reports whether this rank saves checkpoints.
func (r *run) leads() bool { return r.rank() == 0 }

// own returns this rank's wish after the given step. Only rank 0 checks the time limit, whether a save or a comparison
// is due, and the state of its disk. The error is that of compiling plans for new shares.
func (r *run) own(ctx context.Context, step int64) (wish, error) {
	w := wish{stop: ctx.Err() != nil, timeOver: r.MaxDuration > 0 && r.leads() && time.Since(r.start) >= r.MaxDuration,
		save: r.requests() > r.answered, due: r.saveDue(step), compare: r.compareDue(step), saving: !r.settled(), full: !r.recordsFit()}
	if r.change == nil {
		return w, nil
	}
	err := r.change.poll(r.rank())
	w.unready, w.change = r.change.own == nil, r.change.hash
	return w, err
}

// wishes returns the reasons to end the run before the next step. All ranks must leave after the same step. With
// peers, wishes therefore returns the wishes that the ranks exchanged after the last step.
func (r *run) wishes(ctx context.Context) wish {
	if r.peers() != nil {
		return r.asked
	}
	w, _ := r.own(ctx, r.step) // no error, because a single rank never changes shares
	return w
}

// sum sums the gradient over ranks, and exchanges the reports and wishes of the ranks.
func (r *run) sum(ctx, whole context.Context, own *RankStep, out *StepResult) error {
	told := *own // values that are not known yet are replaced by those of the previous step
	told.Times.Communication, told.Times.Hidden, told.Times.Optimizer = r.before.Communication, r.before.Hidden, r.before.Optimizer
	want, err := r.own(ctx, r.step+1)
	if err != nil {
		return err
	}
	x := r.Replica.reports
	x.put(&told, want)
	if err := r.Replica.sumOverRanks(whole, out, x.op); err != nil {
		return err
	}
	all, asked, err := x.read()
	r.reported, r.asked = append(r.reported[:0], all...), asked // a copy: evaluations reuse all
	for i := range r.reported {
		r.reported[i].Positions = own.Positions
	}
	return err
}

// together returns the RankSteps of all ranks for a StepRecord: this rank's values as measured, those of the other
// ranks as reported.
func (r *run) together(own RankStep, out *StepResult) []RankStep {
	r.before, own.Times, own.Buckets, own.Bytes = out.Times, out.Times, out.Buckets, out.Bytes
	r.ranks = append(r.ranks[:0], r.reported...)
	for i := range r.ranks {
		r.ranks[i].Buckets, r.ranks[i].Bytes = out.Buckets, out.Bytes // equal on all ranks
	}
	r.ranks[r.rank()] = own
	return r.ranks
}

// evaluated returns the RankSteps of all ranks for one batch of an evaluation.
func (r *run) evaluated(ctx, whole context.Context, own RankStep) ([]RankStep, error) {
	if r.peers() == nil {
		r.alone[0].Sums, r.alone[0].Replaced = own.Sums, own.Replaced
		return r.alone[:], nil
	}
	want, err := r.own(ctx, r.step)
	if err != nil {
		return nil, err
	}
	all, asked, err := r.Replica.reports.exchange(whole, own, want)
	r.asked = asked
	return all, err
}

// total adds up the Sums of all ranks, in the order of ranks.
func total(ranks []RankStep) (sum Sums) {
	for _, rank := range ranks {
		sum.Add(rank.Sums)
	}
	return sum
}
