package balancer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

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
	// none. A policy uses their shape, and takes their height from the first measurements.
	Curves []divide.Curve
	// CurveErrors are the standard errors of the times of the ranks' Curves, as fractions of these times, in addition to
	// the difference between two runs; nil: none.
	CurveErrors []float64

	// Types are the device types of the ranks; nil: unknown. The curves of ranks of one type have the same shape, but
	// each rank has its own level.
	Types []string

	Objective Objective
	// Slowdown is how much longer than the shortest step a step may be for another objective than time, as a fraction:
	// 0.1 for 10 %.
	Slowdown float64
	// Watts is the power of each rank while it computes, IdleWatts while it waits. For Cost, Watts are prices, and an
	// excluded rank costs nothing.
	Watts, IdleWatts []float64

	// Bench excludes ranks without which every step is shorter.
	Bench bool
}

// Objective is what hybrid minimises.
type Objective uint8

// The objectives.
const (
	Time   Objective = iota // of a step
	Energy                  // of a step, with Watts
	Cost                    // of a step, with prices in Watts: a rank costs the same while it computes and while it waits
)

// Policy divides the batch among the ranks, and changes the shares after an interval. With the same steps, it makes the
// same decisions on every rank of one processor architecture.
type Policy interface {
	// Start returns the shares of the first step.
	Start() []int
	// Observe takes the measurements of one step. At the end of an interval it returns a decision, otherwise nil and
	// false. The decision is valid until the next call.
	Observe(s *Step) (*Decision, bool)
}

// Opener is implemented by a Policy whose first decision does not follow the first interval.
type Opener interface {
	// Opening returns the number of steps before the first decision; 0 if the policy never changes shares.
	Opening() int
}

// Opening returns the number of steps before the first decision of a policy with this interval; 0 if the policy never
// changes shares.
func Opening(p Policy, interval int) int {
	if o, ok := p.(Opener); ok {
		return o.Opening()
	}
	return interval
}

// Learner is a policy that fits curves.
type Learner interface {
	// Curves returns the current curve of each rank, up to the largest share that the rank can hold; nil for a rank
	// that was never measured.
	Curves() []divide.Curve
}

// Step has the measurements of one optimizer step. Policies ignore a time below a nanosecond or above a billion
// seconds. A rank beyond the end of a list has no measurement.
type Step struct {
	Shares []int // samples of every rank; they may differ from the decided shares
	// Own is each rank's time for data, forward and backward, in s, without waits for other ranks. Update is the time
	// of the optimizer before that. Together they are the time from the end of one exchange of gradients to the rank's
	// part of the next exchange.
	Own, Update []float64
	Data        []float64 // of Own, spent waiting for data; nil: unknown
	Pause       []float64 // of Update, time between two steps; nil: unknown
	Exposed     float64   // s of communication after the slowest rank's last gradient
	Seconds     float64   // of the whole step: the longest time that a rank reports
	// Measured is the time from the end of the step before to the end of this step, in s, for explanations; 0: Seconds. It
	// is shorter than Seconds if ranks report times of different steps.
	Measured float64
	// Utilization and Memory of each rank's device as fractions, 0…1; nil or NaN: unknown.
	Utilization, Memory []float64
	// Left is the number of remaining steps of the run; 0: unknown. A probe must pay before the end of the run.
	Left int
	// Settling marks steps during which ranks compile plans for a change. Policies ignore their times.
	Settling bool
}

func (s *Step) measured() float64 {
	if s.Measured > 0 {
		return s.Measured
	}
	return s.Seconds
}

// Decision is the decision of a policy after an interval, with its reason. An Explanation without Ranks means that
// there is none.
type Decision struct {
	Shares  []int // in use
	Next    []int // from now on
	Changed bool  // Next differs
	Reason  string
	Explanation
}

// stay keeps the shares in use if they are a valid division of the batch. The caller may have set other shares.
func (d *Decision) stay(o *Options, start []int) {
	d.Next = d.Shares
	if !o.valid(d.Shares, start) {
		d.Next, d.Reason = slices.Clone(start), "the shares in use are not a valid division of the batch: returning to the start shares"
	}
	d.Changed = !slices.Equal(d.Next, d.Shares)
}

// valid reports whether shares are a division of the batch. Ranks that have samples at the start must have samples,
// unless the policy may exclude ranks.
func (o *Options) valid(shares, start []int) bool {
	if o.Bench {
		start = nil
	}
	return o.Divides(shares, start)
}

// Maker creates a policy.
type Maker struct {
	Name string
	Doc  string                        // one sentence that describes how the policy divides the batch
	New  func(Options) (Policy, error) // called with valid options
}

// Makers are the policies of this package, the baseline first.
func Makers() []Maker {
	return []Maker{
		{"none", "equal shares", newNone},
		{"proportional", "shares by the static compute score of each rank", newProportional},
		{"dynamic", "shares by compute score and measured speed, utilization and memory", newDynamic},
		{"hybrid", "starts like proportional, then fits step-time curves during training and computes the shares with the shortest step from them", newHybrid},
	}
}

// New creates one of the policies of [Makers].
func New(name string, o Options) (Policy, error) {
	for _, m := range Makers() {
		if m.Name == name {
			return m.Make(o)
		}
	}
	return nil, fmt.Errorf("policy: got %q, want %s", name, strings.Join(Policies(), ", "))
}

// Make checks the options and creates the policy.
func (m Maker) Make(o Options) (Policy, error) {
	err := o.check()
	if err == nil {
		var p Policy
		if p, err = m.New(o); err == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("policy %s: %w", m.Name, err)
}

// Policies returns the names of [Makers].
func Policies() []string {
	var names []string
	for _, m := range Makers() {
		names = append(names, m.Name)
	}
	return names
}

func (o *Options) check() error {
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
			return fmt.Errorf("standard error of the curve of rank %d: got %v, want a finite number of at least 0", rank, e)
		}
	}
	for _, list := range []struct {
		name   string
		values []float64
		least  float64
		want   string
	}{{"score", o.Scores, math.SmallestNonzeroFloat64, "above"}, {"power", o.Watts, 0, "of at least"}, {"idle power", o.IdleWatts, 0, "of at least"}} {
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

// scores returns the static scores, or equal scores if they are unknown.
func (o *Options) scores() []float64 {
	if o.Scores != nil {
		return o.Scores
	}
	return slices.Repeat([]float64{1}, o.Ranks)
}
