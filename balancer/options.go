package balancer

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// Options are the inputs of a policy before the first step.
type Options struct {
	divide.Batch
	Ranks    int
	Interval int // steps between two decisions, at least 1

	// Scores are the ranks' static compute scores; only ratios matter. nil: unknown, all ranks count as equally fast.
	Scores []float64
	// Curves are the step-time curves of the ranks from earlier runs; nil, or an empty curve for a rank, if there is
	// none. A policy uses only the ratios between the times of a curve. The first measurements give the factor.
	Curves []divide.Curve
	// CurveErrors are the standard errors of the times of the ranks' Curves, as fractions of these times, in addition
	// to the difference between two runs; nil: none.
	CurveErrors []float64

	// Types are the device types of the ranks; nil: unknown. The step-time curves of ranks of one type differ only by a
	// constant factor.
	Types []string

	Objective Objective
	// Slowdown is the maximum increase of the step time over the shortest possible step, as a fraction (0.1 is 10 %).
	// It applies to the objectives Energy and Cost.
	Slowdown float64
	// Watts is the power of each rank while it computes, and IdleWatts its power while it waits. For the objective
	// Cost, Watts are prices, and an excluded rank costs nothing.
	Watts, IdleWatts []float64

	// Bench allows the policy to exclude a rank if steps are shorter without it.
	Bench bool
}

// Objective is the quantity that policy hybrid minimises.
type Objective uint8

// The objectives.
const (
	Time   Objective = iota // of a step
	Energy                  // of a step, with Watts
	// of a step, with prices in Watts; a rank costs the same while it computes and while it waits
	Cost
)

// Accepts reports whether shares are a valid division of the batch. Each rank that has samples in start must have
// samples in shares, unless the policy may exclude ranks.
func (o *Options) Accepts(shares, start []int) bool {
	if o.Bench {
		start = nil
	}
	return o.Divides(shares, start)
}

// Check returns an error for invalid options.
func (o *Options) Check() error {
	if o.Interval < 1 {
		return fmt.Errorf("interval: got %d steps, want at least 1", o.Interval)
	}
	if err := o.Batch.Check(o.Ranks); err != nil {
		return fmt.Errorf("divide %d samples among %d ranks: %w", o.Total, o.Ranks, err)
	}
	if o.Types != nil && len(o.Types) != o.Ranks {
		return fmt.Errorf("got %d device types, want %d", len(o.Types), o.Ranks)
	}
	if o.Curves != nil && len(o.Curves) != o.Ranks {
		return fmt.Errorf("got %d curves, want %d", len(o.Curves), o.Ranks)
	}
	for rank, c := range o.Curves {
		if len(c) == 0 {
			continue
		}
		if err := c.Check(); err != nil {
			return fmt.Errorf("curve of rank %d: %w", rank, err)
		}
	}
	if o.CurveErrors != nil && len(o.CurveErrors) != o.Ranks {
		return fmt.Errorf("got %d standard errors of curves, want %d", len(o.CurveErrors), o.Ranks)
	}
	for rank, e := range o.CurveErrors {
		if !(e >= 0) || math.IsInf(e, 1) {
			return fmt.Errorf("standard error of the curve of rank %d: got %v, want a finite number of at least 0",
				rank, e)
		}
	}
	for _, list := range []struct {
		name   string
		values []float64
		least  float64
		want   string
	}{{"score", o.Scores, math.SmallestNonzeroFloat64, "above"}, {"power", o.Watts, 0, "of at least"},
		{"idle power", o.IdleWatts, 0, "of at least"}} {
		if list.values != nil && len(list.values) != o.Ranks {
			return fmt.Errorf("got %d values of %s, want %d", len(list.values), list.name, o.Ranks)
		}
		for rank, v := range list.values {
			if !(v >= list.least) || math.IsInf(v, 1) {
				return fmt.Errorf("%s of rank %d: got %v, want a finite number %s 0", list.name, rank, v, list.want)
			}
		}
	}
	if o.Objective == Energy && (o.Watts == nil || o.IdleWatts == nil) || o.Objective == Cost && o.Watts == nil {
		return errors.New("got no power or price, want one value for each rank, because the objective is not time")
	}
	if !(o.Slowdown >= 0) || math.IsInf(o.Slowdown, 1) {
		return fmt.Errorf("slowdown: got %v, want a finite number of at least 0", o.Slowdown)
	}
	return nil
}

// ScoresOrEqual returns the static scores, or equal scores if they are unknown.
func (o *Options) ScoresOrEqual() []float64 {
	if o.Scores != nil {
		return o.Scores
	}
	return slices.Repeat([]float64{1}, o.Ranks)
}
