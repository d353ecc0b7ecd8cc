package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/task"
)

// PrepareEvaluation prepares the working copies of the parameters for Evaluate.
func (r *Replica) PrepareEvaluation() error {
	if r.now.eval == nil {
		return nil
	}
	return r.now.eval.plan.Prepare(r.stream)
}

// ResetCounts sets the counts of predictions to zero, before an evaluation.
func (r *Replica) ResetCounts() {
	if r.tally != nil {
		r.tally.Reset()
	}
}

// Counts returns the predictions of all ranks since ResetCounts, by class. It returns nil if the task has no classes to
// count. All ranks call it together.
func (r *Replica) Counts(ctx context.Context) (*task.Confusion, error) {
	if r.tally == nil {
		return nil, nil
	}
	return r.tally.sum(ctx)
}

// Evaluate runs one batch with running statistics and without dropout. The batch has at most this rank's share of a
// micro-batch.
func (r *Replica) Evaluate(b *data.Batch) (Sums, error) {
	if b.N == 0 {
		return Sums{}, nil
	}
	eval := r.now.eval
	if err := eval.load(r.stream, b); err != nil {
		return Sums{}, err
	}
	if err := eval.plan.Forward(r.stream); err != nil {
		return Sums{}, fmt.Errorf("evaluation: %w", err)
	}
	if err := errors.Join(eval.fetch(r.stream, 0), r.stream.Sync()); err != nil {
		return Sums{}, fmt.Errorf("evaluation: %w", err)
	}
	sums := eval.sums(b.N, 0)
	sums.Count = targetsOf(b)
	if r.tally != nil {
		eval.count(b, r.tally.Confusion)
	}
	return sums, nil
}
