package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// evaluator evaluates a model on held-out samples, and keeps the results.
type evaluator struct {
	replica     *replica.Replica
	loader      *data.Loader // nil: no evaluation
	ranks       *consensus
	at          *progress
	interval    int  // Options.EvalInterval
	average     bool // Options.EvalAverage
	metric      string
	maxReplaced int // Options.MaxReplaced
	early       EarlyStop

	owed     bool // an evaluation of this step is due
	last     *Evaluation
	best     *checkpoint.Best
	stopping stopping
}

// due reports whether an evaluation follows this step: at the end of the run and of every interval-th epoch.
func (e *evaluator) due() bool {
	epochEnd := e.interval > 0 && e.at.position()%(e.at.epochSteps*int64(e.interval)) == 0
	return e.loader != nil && (epochEnd || e.at.over())
}

// note keeps the result of an evaluation, and returns it with the field Best set.
func (e *evaluator) note(result Evaluation) Evaluation {
	e.owed = false
	e.stopping.note(e.early, result)
	sound := isFinite(result.Loss) && e.at.nanRow == 0
	metric := e.replica.Options().Task.Report().Named(e.metric)
	value, best := metric.Of(result.Score()), e.best
	if sound && (best == nil || best.Metric != metric.Key || metric.Better(value, float64(best.Value))) {
		result.Best = true
		e.best = &checkpoint.Best{Metric: metric.Key, Value: checkpoint.Float(value), Step: e.at.step}
	}
	e.last = &result
	return result
}

// missing reports whether an evaluation of this step is due but has not been done.
func (e *evaluator) missing() bool { return e.due() && (e.last == nil || e.last.Step != e.at.step) }

// diverged reports whether the loss of the evaluation after this step is not finite.
func (e *evaluator) diverged() bool {
	return e.last != nil && e.last.Step == e.at.step && !isFinite(e.last.Loss)
}

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// evaluate evaluates all held-out samples. If a rank stops the run, it returns context.Canceled.
func (e *evaluator) evaluate(ctx context.Context) (_ Evaluation, err error) {
	started, uncancelled := time.Now(), context.WithoutCancel(ctx)
	averaged := e.replica.Averages() != nil && e.average
	if averaged {
		if err := e.replica.ExchangeAverages(); err != nil {
			return Evaluation{}, err
		}
		defer func() {
			if back := e.replica.ExchangeAverages(); back != nil { // comes first: a save would store averages
				err = fmt.Errorf("restore the trained weights after the evaluation of the averaged weights: %w "+
					"(the evaluation itself failed with: %v)", back, err)
			}
		}()
	}
	if err := e.start(); err != nil {
		return Evaluation{}, err
	}
	all, err := e.batches(ctx, uncancelled)
	if err != nil {
		return Evaluation{}, err
	}
	score := all.Score()
	var never []int
	confusion, err := e.replica.Counts(uncancelled)
	if err != nil {
		return Evaluation{}, err
	}
	if confusion != nil {
		score.F1, score.MacroF1, never = confusion.F1(), confusion.MacroF1(), confusion.Never()
	}
	epoch := int((e.at.position() - 1) / e.at.epochSteps)
	return Evaluation{Averaged: averaged, Step: e.at.step, Epoch: epoch, Samples: all.Samples,
		Loss: score.Loss, Top1: score.Top1, Top5: score.Top5, F1: score.F1, MacroF1: score.MacroF1, Never: never,
		MultiLabel: e.replica.Options().Task.Report().Independent,
		SampleLoss: score.SampleLoss, SampleTop1: score.SampleTop1, Took: time.Since(started)}, nil
}

// start moves the loader to the first batch of the held-out samples.
func (e *evaluator) start() error {
	if err := errors.Join(e.loader.JumpTo(0), e.replica.PrepareEvaluation()); err != nil {
		return err
	}
	if e.ranks.group != nil { // the shares may have changed since the last evaluation
		if reads := e.replica.Shares().Part(); e.loader.SetShare(0, reads.Offset, reads.Count) != nil {
			return fmt.Errorf("evaluation: got share %+v, want a share of a batch", reads)
		}
	}
	e.replica.ResetCounts()
	return nil
}

// batches evaluates all batches. It returns the totals over all ranks.
func (e *evaluator) batches(ctx, uncancelled context.Context) (all replica.Sums, err error) {
	if e.ranks.group != nil {
		ctx = uncancelled // a single rank stops immediately; several ranks must stop the evaluation together
	}
	replaced := 0
	for {
		b, err := e.loader.Next(ctx)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		own := RankStep{Replaced: b.Replaced}
		own.Sums, err = e.replica.Evaluate(b)
		b.Release()
		if err != nil {
			return all, err
		}
		ranks, err := e.ranks.evaluated(uncancelled, own)
		if err != nil {
			return all, err
		}
		if e.ranks.asked.stop {
			return all, context.Canceled
		}
		all.Add(total(ranks))
		for _, rank := range ranks {
			replaced += rank.Replaced
		}
		if e.maxReplaced > 0 && replaced > e.maxReplaced {
			return all, unreadable(replaced, e.maxReplaced, "the held-out samples")
		}
	}
}
