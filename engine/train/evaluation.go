package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// evaluationDue reports whether an evaluation follows this step: at the end of the run and of every EvalInterval-th
// epoch.
func (r *run) evaluationDue() bool {
	epochEnd := r.EvalInterval > 0 && r.position()%(r.epochSteps*int64(r.EvalInterval)) == 0
	return r.Eval != nil && (epochEnd || r.end > 0 && r.step >= r.end)
}

// evaluateIfOwed evaluates if an evaluation is due. If the evaluation is interrupted, the evaluation remains due, and
// the resumed run starts with it.
func (r *run) evaluateIfOwed(ctx context.Context) error {
	if !r.evalOwed {
		return nil
	}
	defer r.pause()()
	e, err := r.evaluate(ctx)
	if errors.Is(err, context.Canceled) {
		r.savedStep = -1 // forces a save, which records that the evaluation is still due
		return nil
	}
	if errors.Is(err, errUnreadable) {
		r.savedStep = -1
		err = r.leaveWith(context.WithoutCancel(ctx), err)
	}
	if err != nil {
		return fmt.Errorf("evaluation after step %d: %w", r.step, err)
	}
	r.evalOwed = false
	r.stopping.note(r.EarlyStop, e)
	sound := !math.IsNaN(e.Loss) && !math.IsInf(e.Loss, 0) && r.nanRow == 0
	metric := r.Replica.Options().Task.Report().Named(r.BestMetric)
	value := metric.Of(e.Score())
	if best := r.result.Best; sound &&
		(best == nil || best.Metric != metric.Key || metric.Better(value, float64(best.Value))) {
		e.Best = true
		r.result.Best = &checkpoint.Best{Metric: metric.Key, Value: checkpoint.Float(value), Step: r.step}
	}
	r.result.LastEval = &e
	r.Observer.EvalDone(e)
	if e.Best && r.KeepBest {
		if stop, err := r.awaitSave(ctx); err != nil || stop { // after a stop, finalSave saves the best checkpoint
			return err
		}
		if err := r.compare(context.WithoutCancel(ctx), true); err != nil {
			return err
		}
		if err := r.saveBeside(); err != nil {
			r.Observer.Warn(err)
		}
	}
	return nil
}

// evaluate evaluates all held-out samples.
func (r *run) evaluate(ctx context.Context) (_ Evaluation, err error) {
	started, whole := time.Now(), context.WithoutCancel(ctx)
	one := ctx // a single rank stops at once; several ranks must stop the evaluation together
	if r.group() != nil {
		one = whole
	}
	averaged := r.Replica.Averages() != nil && r.EvalAverage
	if averaged {
		if err := r.Replica.ExchangeAverages(); err != nil {
			return Evaluation{}, err
		}
		defer func() {
			if back := r.Replica.ExchangeAverages(); back != nil { // comes first: a save would store averages
				err = fmt.Errorf("restore the trained weights after the evaluation of the averaged weights: %w (the evaluation itself failed with: %v)",
					back, err)
			}
		}()
	}
	if err := errors.Join(r.Eval.JumpTo(0), r.Replica.PrepareEvaluation()); err != nil {
		return Evaluation{}, err
	}
	if r.group() != nil { // the shares may have changed since the last evaluation
		if reads := r.Replica.Shares().Part(); r.Eval.SetShare(0, reads.Offset, reads.Count) != nil {
			return Evaluation{}, fmt.Errorf("evaluation: got share %+v, want a share of a batch", reads)
		}
	}
	var all replica.Sums
	replaced := 0
	r.Replica.ResetCounts()
	for {
		b, err := r.Eval.Next(one)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Evaluation{}, err
		}
		own := RankStep{Replaced: b.Replaced}
		own.Sums, err = r.Replica.Evaluate(b)
		b.Release()
		if err != nil {
			return Evaluation{}, err
		}
		ranks, err := r.evaluated(whole, own)
		if err != nil {
			return Evaluation{}, err
		}
		if r.asked.stop {
			return Evaluation{}, context.Canceled
		}
		all.Add(total(ranks))
		for _, rank := range ranks {
			replaced += rank.Replaced
		}
		if r.MaxReplaced > 0 && replaced > r.MaxReplaced {
			return Evaluation{}, r.unreadable(replaced, "the held-out samples")
		}
	}
	score := all.Score()
	var never []int
	confusion, err := r.Replica.Counts(whole)
	if err != nil {
		return Evaluation{}, err
	}
	if confusion != nil {
		score.F1, score.MacroF1, never = confusion.F1(), confusion.MacroF1(), confusion.Never()
	}
	return Evaluation{Averaged: averaged, Step: r.step, Epoch: int((r.position() - 1) / r.epochSteps),
		Samples: all.Samples, Loss: score.Loss,
		Top1: score.Top1, Top5: score.Top5, F1: score.F1, MacroF1: score.MacroF1, Never: never,
		SampleLoss: score.SampleLoss, SampleTop1: score.SampleTop1, Took: time.Since(started)}, nil
}
