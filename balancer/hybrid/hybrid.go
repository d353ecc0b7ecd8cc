package hybrid

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/estimate"
	"github.com/hetero-train/hetero-train/balancer/internal/window"
)

// policy learns the step times of the ranks from each window, chooses the best shares, and probes others if that pays.
type policy struct {
	opts     balancer.Options
	window   *window.Window
	model    *estimate.Model
	pace     pace
	price    changePrice
	chooser  chooser
	excluded exclusions
	prober   prober
	accounts accounts
	changed  bool // the last decision changed the shares
}

// New creates policy hybrid. It starts with shares by the scores, or with the best shares on the curves of earlier
// runs.
func New(o balancer.Options) (balancer.Policy, error) { return newPolicy(o) }

func newPolicy(o balancer.Options) (*policy, error) {
	start, err := o.Divide(o.ScoresOrEqual())
	if err != nil {
		return nil, err
	}
	equal := slices.Clone(start)
	if o.Scores != nil {
		if equal, err = o.Divide(slices.Repeat([]float64{1}, o.Ranks)); err != nil {
			return nil, err
		}
	}
	active, limits := make([]bool, o.Ranks), o.Capacities(o.Ranks)
	for r, n := range start {
		active[r] = n > 0
	}
	model := estimate.New(estimate.Options{Limits: limits, Active: active, Interval: o.Interval, Types: o.Types,
		Curves: o.Curves, CurveErrors: o.CurveErrors})
	curves, known := model.Start()
	if known {
		start, err = divide.Solve(o.Batch, curves)
	}
	p := &policy{opts: o, window: window.New(o.Ranks, o.Interval), model: model, excluded: newExclusions(active)}
	p.pace = pace{interval: o.Interval, blind: o.Scores == nil && !known}
	p.price.interval = float64(o.Interval)
	p.chooser = chooser{opts: &p.opts, model: model, start: start, limits: limits}
	p.prober = prober{chooser: &p.chooser, patience: 1}
	p.accounts = accounts{chooser: &p.chooser, equal: equal}
	return p, err
}

// Start implements [balancer.Policy].
func (p *policy) Start() []int { return slices.Clone(p.chooser.start) }

// Curves implements [balancer.Learner].
func (p *policy) Curves() []divide.Curve { return p.model.Measured() }

// Memory implements [balancer.Sized].
func (p *policy) Memory() []balancer.Memory {
	beliefs, shapes, curves := p.model.Bytes()
	return []balancer.Memory{{Name: "times of the window", Bytes: p.window.Bytes()},
		{Name: "measured shares", Bytes: beliefs}, {Name: "fits", Bytes: shapes}, {Name: "curves", Bytes: curves},
		{Name: "scenarios", Bytes: int64(cap(p.accounts.room)) * int64(unsafe.Sizeof(prospect{}))}}
}

// Opening implements [balancer.Opener].
func (p *policy) Opening() int { return p.pace.length() }

// Observe implements [balancer.Policy].
func (p *policy) Observe(s *balancer.Step) (*balancer.Decision, bool) {
	p.price.observe(s, p.window.Shares)
	p.prober.left = s.Left
	if !p.window.Add(s) && !p.endsEarly() {
		return nil, false
	}
	if !p.prober.running {
		p.price.steady = p.window.Seconds.Or(p.price.steady)
	}
	p.prober.running = false
	p.learn()
	d := &balancer.Decision{Shares: slices.Clone(p.window.Shares), Explanation: p.window.Explain()}
	if d.Next, d.Reason = p.decide(d); d.Next == nil {
		d.Stay(&p.opts, p.chooser.start)
	} else {
		d.Changed = !slices.Equal(d.Next, d.Shares)
	}
	p.accounts.predict(d)
	p.changed = d.Changed
	p.window.Next()
	return d, true
}

// endsEarly reports whether the window ends before its interval: it is one of the first windows, or its shares are new
// and cost more than probes may.
func (p *policy) endsEarly() bool {
	steps := p.window.Seconds.N
	if steps >= p.pace.length() {
		return true
	}
	sigmas := changeSigmas
	if p.prober.running {
		sigmas = 1
	}
	return p.changed && steps >= fewSteps && p.price.tooSlow(p.window, p.model.Noise(), sigmas)
}

// learn updates the model with the window.
func (p *policy) learn() {
	p.model.Learn(&estimate.Window{Shares: p.window.Shares, Seconds: p.window.Compute, Opening: p.pace.opening(),
		Blind: p.pace.blind})
}

// fit computes the curves, and adds the fitted times to the decision. It returns the reason if a rank was not measured.
func (p *policy) fit(d *balancer.Decision) (unknown string) {
	// A slowdown is relative to the shortest step, without a margin.
	fitted, missing := p.model.Fit(d.Shares, p.opts.Objective == balancer.Time)
	p.pace.windows++
	for r, f := range fitted {
		d.Ranks[r].Fitted, d.Ranks[r].Error = f.Seconds, f.Error
	}
	if missing >= 0 {
		return fmt.Sprintf("the time of rank %d was not measured", missing)
	}
	return ""
}

// decide returns the next shares, or nil and the reason to keep the shares. The reasons to change them are, in this
// order: the shares in use do not divide the batch; an excluded rank is due; a surprising time needs a second
// measurement; other shares are better; a probe pays.
func (p *policy) decide(d *balancer.Decision) (next []int, reason string) {
	if d.Unknown = p.fit(d); d.Unknown != "" {
		return nil, d.Unknown
	}
	reach := p.chooser.reach()
	best, err := p.chooser.best(reach, p.model.Cautious())
	if err != nil {
		return nil, err.Error()
	}
	p.accounts.explain(d, best, p.window)
	if !p.opts.Accepts(d.Shares, p.chooser.start) {
		return best, "the shares in use are not a valid division of the batch"
	}
	if p.opts.Bench && p.excluded.readmit(&p.chooser, d.Shares, best) {
		return best, "an excluded rank gets samples again, to measure its speed"
	}
	if next, rank := p.prober.confirm(reach, d.Shares, best); next != nil {
		return next, fmt.Sprintf("rank %d gets an earlier share again, to check whether its speed has changed", rank)
	}
	change, reason := p.worthChanging(d, best)
	if change {
		p.prober.quiet = 0
		return best, reason
	}
	if next, probe := p.prober.probe(reach, d.Shares); next != nil {
		return next, probe
	}
	return nil, reason
}

// worthChanging reports whether the gain of the best shares exceeds its doubt and the price of a change, with the
// reason.
func (p *policy) worthChanging(d *balancer.Decision, best []int) (change bool, reason string) {
	g := p.chooser.gain(d, best, p.window)
	price := p.price.fraction(g.step)
	switch {
	case slices.Equal(best, d.Shares):
		return false, "the current shares are the best ones"
	case g.fraction >= max(leastGain+g.doubt, price):
		return true, g.reason
	case g.fraction < leastGain+g.doubt:
		return false, fmt.Sprintf("a change of shares would save %.2f %%, which may be noise", 100*max(g.fraction, 0))
	}
	return false, fmt.Sprintf("a change of shares would save %.2f %%, less than the change costs", 100*g.fraction)
}
