package train

import (
	"context"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// group returns the group of the ranks that train together, or nil for a single rank.
func (r *run) group() *gradsync.Group { return r.Replica.Group() }

// rank returns the number of this rank.
func (r *run) rank() int { return r.group().Rank() }

// leads reports whether this rank saves checkpoints.
func (r *run) leads() bool { return r.rank() == 0 }

// own returns this rank's wish after the given step. Only rank 0 checks the time limit, whether a save or a comparison
// is due, and the state of its disk. The error is that of compiling plans for new shares.
func (r *run) own(step int64) (w wish, err error) {
	w = wish{stop: r.interrupted(), timeOver: r.MaxDuration > 0 && r.leads() && time.Since(r.start) >= r.MaxDuration,
		save: r.requests() > r.answered, due: r.saveDue(step), compare: r.compareDue(step), saving: !r.settled(),
		full: !r.recordsFit()}
	w.unready, w.change, err = r.Replica.Shares().Vote()
	return w, err
}

// wishes returns the reasons to end the run before the next step. All ranks must leave after the same step. With
// peers, wishes therefore returns the wishes that the ranks exchanged after the last step.
func (r *run) wishes() wish {
	if r.group() != nil {
		return r.asked
	}
	w, _ := r.own(r.step) // no error, because a single rank never changes shares
	return w
}

// Send implements Exchange: it reports this rank's part of the step, and its wishes.
func (r *run) Send(out replica.StepResult) (collective.Op, error) {
	r.describe(&out)
	told := r.latest // values that are not known yet are replaced by those of the previous step
	told.Times.Communication, told.Times.Hidden, told.Times.Optimizer = r.before.Communication, r.before.Hidden,
		r.before.Optimizer
	want, err := r.own(r.step + 1)
	if err != nil {
		return nil, err
	}
	r.reports.put(&told, want)
	return r.reports.rows.Op(), nil
}

// Received implements Exchange: it keeps the reports and wishes of all ranks.
func (r *run) Received() (count int, err error) {
	all, asked, err := r.reports.read()
	r.reported, r.asked = append(r.reported[:0], all...), asked // a copy: evaluations reuse all
	for i := range r.reported {
		r.reported[i].Positions = r.latest.Positions
	}
	return total(r.reported).Count, err
}

// together returns the RankSteps of all ranks for a StepRecord: this rank's values as measured, those of the other
// ranks as reported.
func (r *run) together(out *replica.StepResult) []RankStep {
	own := r.latest
	r.before, own.Times, own.Buckets, own.Bytes = out.Times, out.Times, out.Buckets, out.Bytes
	r.ranks = append(r.ranks[:0], r.reported...)
	for i := range r.ranks {
		r.ranks[i].Buckets, r.ranks[i].Bytes = out.Buckets, out.Bytes // equal on all ranks
	}
	r.ranks[r.rank()] = own
	return r.ranks
}

// evaluated returns the RankSteps of all ranks for one batch of an evaluation.
func (r *run) evaluated(whole context.Context, own RankStep) ([]RankStep, error) {
	if r.group() == nil {
		r.alone[0].Sums, r.alone[0].Replaced = own.Sums, own.Replaced
		return r.alone[:], nil
	}
	want, err := r.own(r.step)
	if err != nil {
		return nil, err
	}
	all, asked, err := r.reports.exchange(whole, own, want)
	r.asked = asked
	return all, err
}

// total adds up the replica.Sums of all ranks, in the order of ranks.
func total(ranks []RankStep) (sum replica.Sums) {
	for _, rank := range ranks {
		sum.Add(rank.Sums)
	}
	return sum
}
