package train

import (
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/data"
)

// PrepareEvaluation prepares the working copies of the parameters for Evaluate.
func (r *Replica) PrepareEvaluation() error {
	if r.now.eval == nil {
		return nil
	}
	return r.now.eval.plan.Prepare(r.stream)
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
