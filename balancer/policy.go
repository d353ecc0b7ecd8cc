package balancer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Options are what a policy knows before the first step.
type Options struct {
	Batch
	Ranks    int
	Interval int // steps between two decisions, at least 1

	// Scores are the ranks' static compute scores; only ratios matter. nil: unknown, all count alike.
	Scores []float64
	// Curves are what is known of the ranks' step times from earlier runs; nil, or an empty curve, where nothing is. They are
	// believed in their shape; their height is taken from the first measurements.
	Curves []Curve
	// CurveErrors are the standard errors of the times of the ranks' Curves, as fractions of these times, in addition to
	// the difference between two runs; nil: none.
	CurveErrors []float64

	// Types are the device types of the ranks; nil: unknown. Ranks of one type have curves of one shape, at levels of their own.
	Types []string

	Objective Objective
	// Slowdown is by how much a step may be longer than the shortest possible for the sake of another objective, as a fraction: 0.1 for 10 %.
	Slowdown float64
	// Watts are what each rank draws while it computes, IdleWatts while it waits. For Cost, Watts are prices, and a rank that is benched costs nothing.
	Watts, IdleWatts []float64

	// Bench gives ranks no samples that make every step longer than it is without them.
	Bench bool
}

// Objective is what hybrid minimises.
type Objective uint8

// The objectives.
const (
	Time   Objective = iota // of a step
	Energy                  // of a step, with Watts
	Cost                    // of a step, with prices as Watts: a rank costs the same whether it computes or waits
)

// Policy divides the batch among the ranks, and again after every interval. Fed the same steps on every rank (of one processor architecture), it
// answers the same on every rank.
type Policy interface {
	// Start is the shares of the first step.
	Start() []int
	// Observe takes in one step, and decides where an interval is over: nil, false elsewhere. The decision is valid until the next call.
	Observe(s *Step) (*Decision, bool)
}

// Learner is a policy that fits curves.
type Learner interface {
	// Curves are the ranks' curves as far as they are known now, up to what each can hold: nil for a rank that was never measured.
	Curves() []Curve
}

// Step is one optimizer step as the ranks measured it. A time that is not between a nanosecond and a billion seconds is no measurement, and
// ranks beyond the end of a list have none.
type Step struct {
	Shares []int // samples that each rank had, for every rank; they need not be what was decided
	// Own is each rank's time for data, forward and backward passes, in seconds, without any waiting for other ranks; Update its optimizer's before
	// that. Together they are what lies between the end of one exchange of gradients and a rank's part of the next.
	Own, Update []float64
	Data        []float64 // of Own, spent waiting for data; nil: unknown
	Exposed     float64   // s of communication after the slowest rank's last gradient
	Seconds     float64   // of the whole step
	// Utilization and Memory of each rank's device as fractions, 0…1; nil or NaN: unknown.
	Utilization, Memory []float64
	// Left is the number of steps of the run after this one; 0: unknown. A probe must pay before the end of the run.
	Left int
	// Settling marks steps that a coming change disturbs, because plans for it are being made: they teach nothing.
	Settling bool
}

// Decision is what a policy wants after an interval, and why. An explanation without Ranks stands for none.
type Decision struct {
	Shares  []int // in use
	Next    []int // from now on
	Changed bool  // Next differs
	Reason  string
	Explanation
}

// stay keeps the shares in use, if they divide the batch; somebody else may have set them.
func (d *Decision) stay(o *Options, start []int) {
	d.Next = d.Shares
	if !o.valid(d.Shares, start) {
		d.Next, d.Reason = slices.Clone(start), "the shares in use are not a valid division of the batch: the start shares apply again"
	}
	d.Changed = !slices.Equal(d.Next, d.Shares)
}

// valid reports whether shares are a division of the batch. Ranks that have samples at the start keep some, unless ranks may be benched.
func (o *Options) valid(shares, start []int) bool {
	if o.Bench {
		start = nil
	}
	return o.divides(shares, start)
}

// Maker is a policy by name.
type Maker struct {
	Name string
	Doc  string                        // one sentence: how it divides the batch
	New  func(Options) (Policy, error) // called with valid options
}

// Makers are the policies of this package, the baseline first.
func Makers() []Maker {
	return []Maker{
		{"none", "equal shares", newNone},
		{"proportional", "shares by the static compute score of each rank", newProportional},
		{"dynamic", "shares by compute score and measured speed, utilization and memory", newDynamic},
		{"hybrid", "starts like proportional, then fits step-time curves during training and computes from them the shares with the shortest step", newHybrid},
	}
}

// New makes one of the policies of [Makers].
func New(name string, o Options) (Policy, error) {
	for _, m := range Makers() {
		if m.Name == name {
			return m.Make(o)
		}
	}
	return nil, fmt.Errorf("policy: got %q, want %s", name, strings.Join(Policies(), ", "))
}

// Make checks the options and makes the policy.
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
	if _, err := o.units(o.Ranks); err != nil {
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
		return fmt.Errorf("got %d errors of curves, want %d", len(o.CurveErrors), o.Ranks)
	}
	for rank, e := range o.CurveErrors {
		if !(e >= 0) || math.IsInf(e, 1) {
			return fmt.Errorf("error of the curve of rank %d: got %v, want a finite number of at least 0", rank, e)
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
		return errors.New("got no power or price, want the value of each rank for an objective other than time")
	}
	if !(o.Slowdown >= 0) || math.IsInf(o.Slowdown, 1) {
		return fmt.Errorf("slowdown: got %v, want a finite number of at least 0", o.Slowdown)
	}
	return nil
}

// scores are the static scores, equal ones where they are unknown.
func (o *Options) scores() []float64 {
	if o.Scores != nil {
		return o.Scores
	}
	return slices.Repeat([]float64{1}, o.Ranks)
}
