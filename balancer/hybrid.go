package balancer

import (
	"fmt"
	"math"
	"slices"
)

// hybrid starts by the scores, or on the curves of an earlier run, then fits each rank's curve to what is measured and takes
// the best shares on these curves. The loop is closed by measuring again: what the curves said is corrected where the shares now are.
type hybrid struct {
	opts   Options
	start  []int
	fed    []bool // ranks that can have samples at all
	most   []int  // samples of each rank: as far as its curve is drawn
	window *window
	ranks  []*estimate

	together together
	belief   belief // of all ranks' curves

	fits    []*fitted // as of the last decision, nil of a rank without measurements
	curves  []Curve   // as of the last decision; of a rank without measurements one that takes no time
	sure    []Curve   // likewise, of ranks as much slower as caution has it: shares are chosen on these
	benched []int     // decisions since a rank has no samples, 0 for one that has
	recall  []int     // decisions after which a benched rank is tried again

	calm      int // decisions since the last change that was to gain, or since the last probe began
	decisions int
	patience  int // decisions without a change before a probe
	probing   int // decisions until the probe is over, 0: none is made

	steady float64 // s of a step between changes, 0 before the first window
	change float64 // s that a change of shares cost of late
	extra  float64 // s beyond steady in the change that is under way
}

// What a change of shares must bring. All are fractions of a step.
const (
	leastGain   = 0.0015 // below this no change is worth the reader's attention
	gainSigmas  = 0.8    // of the slowest rank's curve: what could be noise
	caution     = 0.27   // times sqrt(2 ln ranks), which grows as what the slowest of them is above its curve. More of it leaves too much untried, by simulation
	payBack     = 10     // intervals in which a change must earn what it costs
	mostCost    = 0.1    // no price of a change is in the way of a greater gain
	fading      = 0.98   // of the price of a change, a decision
	furthest    = 4.0    // times the largest share that a rank was measured at, or down from the smallest: how far one decision goes
	recallFirst = 20     // decisions
	recallMost  = 640
)

func newHybrid(o Options) (Policy, error) {
	h := &hybrid{opts: o, most: o.limits(o.Ranks), window: newWindow(o.Ranks, o.Interval), ranks: make([]*estimate, o.Ranks), together: newTogether(), belief: beforehand,
		fits: make([]*fitted, o.Ranks), curves: make([]Curve, o.Ranks), sure: make([]Curve, o.Ranks), benched: make([]int, o.Ranks), patience: firstPatience, recall: slices.Repeat([]int{recallFirst}, o.Ranks)}
	var err error
	if h.start, err = o.Divide(o.scores()); err != nil {
		return nil, err
	}
	curves, known := slices.Repeat([]Curve{timeless}, o.Ranks), o.Curves != nil
	for r, n := range h.start {
		h.fed, h.curves[r], h.sure[r] = append(h.fed, n > 0), timeless, timeless
		var prior Curve
		if o.Curves != nil && n > 0 {
			prior = o.Curves[r]
			curves[r] = prior.smoothed()
			known = known && len(prior) > 0
		}
		h.ranks[r] = newEstimate(prior, h.most[r])
		h.ranks[r].belief = &h.belief
	}
	if known {
		h.start, err = Solve(o.Batch, curves)
	}
	return h, err
}

// timeless stands for the curve of a rank that was never measured.
var timeless = Curve{{1, 0}}

// Start implements [Policy].
func (h *hybrid) Start() []int { return slices.Clone(h.start) }

// Curves implements [Learner].
func (h *hybrid) Curves() []Curve {
	curves := slices.Clone(h.curves)
	for r, e := range h.ranks {
		if e.current < 0 {
			curves[r] = nil
		}
	}
	return curves
}

// Observe implements [Policy].
func (h *hybrid) Observe(s *Step) (*Decision, bool) {
	h.bill(s)
	if !h.window.add(s) {
		return nil, false
	}
	w := h.window
	readings := make([]reading, len(h.ranks))
	for r, e := range h.ranks {
		readings[r] = e.read(w.shares[r], w.compute[r], h.fits[r])
	}
	h.together.follow(h.ranks, readings)
	if seconds := w.seconds.or(0); seconds > 0 {
		h.steady = seconds
	}
	d := &Decision{Shares: slices.Clone(w.shares), Explanation: w.explain()}
	if d.Next, d.Reason = h.decide(d); d.Next == nil {
		d.stay(&h.opts, h.start)
	} else {
		d.Changed = true
	}
	w.next()
	return d, true
}

// bill measures what a change costs beyond steady steps: while it settles, and in its first step. A price is believed less and less while
// nothing changes, and is never so high that it forbids all changes: a clock that jumped would stop the balancing for ever.
func (h *hybrid) bill(s *Step) {
	changed := h.window.shares != nil && !slices.Equal(s.Shares, h.window.shares)
	if h.steady > 0 && (s.Settling || changed) && valid(s.Seconds) > h.steady {
		h.extra += s.Seconds - h.steady
	}
	if !changed {
		return
	}
	if h.change == 0 {
		h.change = h.extra
	}
	h.change += 0.3 * (h.extra - h.change)
	h.change = min(h.change, mostCost*payBack*float64(h.opts.Interval)*h.steady)
	h.extra = 0
}

// decide returns the next shares, or nil and why they stay.
func (h *hybrid) decide(d *Decision) ([]int, string) {
	if missing := h.fit(d); missing >= 0 {
		return nil, fmt.Sprintf("rank %d was not measured", missing)
	}
	best, err := h.best()
	if err != nil {
		return nil, err.Error()
	}
	h.account(d, best)
	h.change *= fading
	h.calm++
	h.decisions++
	if !h.opts.valid(d.Shares, h.start) {
		return best, "shares in use are no division of the batch"
	}
	if h.recalls(d, best) {
		return best, "a rank without samples is tried again"
	}
	g := h.gain(d.Shares, best)
	if h.probing > 0 {
		switch next := h.goOn(d.Shares, best, g.cost); {
		case next == nil:
		case slices.Equal(next, d.Shares):
			return nil, "a probe goes on"
		case g.fraction >= leastGain+g.doubt:
			return next, g.reason + "; a probe goes on"
		default:
			return next, "a probe goes on: what ranks could do with other shares is badly known"
		}
	}
	switch {
	case slices.Equal(best, d.Shares):
		g.fraction, g.reason = 0, "shares are the best ones"
	case g.fraction >= max(leastGain+g.doubt, g.cost):
		h.calm = 0
		return best, g.reason
	case g.fraction < leastGain+g.doubt:
		g.reason = fmt.Sprintf("a change would gain %.2f %%, which may be noise", 100*max(g.fraction, 0))
	default:
		g.reason = fmt.Sprintf("a change would gain %.2f %%, less than it costs", 100*g.fraction)
	}
	if h.opts.Objective == Time && h.calm >= h.patience {
		if next := h.probe(d.Shares, g.cost); next != nil {
			h.calm, h.probing, h.patience = 0, h.probeLasts(), min(int(math.Ceil(patienceGrows*float64(h.patience))), mostPatience)
			return next, "a probe: what ranks could do with other shares is badly known"
		}
	}
	return nil, g.reason
}

// fit draws all curves around the shares in use. missing is a rank that should have been measured, -1 if there is none.
func (h *hybrid) fit(d *Decision) (missing int) {
	sigmas := 0.0
	if h.decisions >= settledAfter && h.opts.Objective == Time { // a slowdown is of the shortest step, not of a cautious one
		sigmas = caution * math.Sqrt(2*math.Log(float64(len(h.ranks))))
	}
	for r, e := range h.ranks {
		if e.current < 0 && d.Shares[r] > 0 || len(e.cells) == 0 && h.fed[r] {
			return r
		}
		if len(e.cells) == 0 {
			continue
		}
		b0 := float64(d.Shares[r])
		if b0 == 0 {
			b0 = e.cells[max(e.current, 0)].samples
		}
		h.fits[r] = e.fit(b0)
		h.curves[r], h.sure[r] = h.fits[r].curves(h.most[r], sigmas)
		if d.Shares[r] > 0 {
			d.Ranks[r].Fitted, d.Ranks[r].Error = h.curves[r].At(b0), h.fits[r].sigma(b0)
		}
	}
	h.belief.learn(h.fits)
	return -1
}

// best is the best shares that one decision may go to.
func (h *hybrid) best() ([]int, error) {
	batch := h.opts.Batch
	batch.Limits = slices.Clone(h.most)
	batch.least = make([]int, len(h.ranks))
	capacity := 0
	for r, e := range h.ranks {
		fewest, most := math.Inf(1), 0.0
		for _, c := range e.cells {
			fewest, most = min(fewest, c.samples), max(most, c.samples)
		}
		if most > 0 {
			batch.least[r] = min(int(fewest/furthest), h.start[r])
			batch.Limits[r] = min(batch.Limits[r], max(int(furthest*most), 2*max(h.opts.Unit, 1)))
		}
		capacity += batch.Limits[r]
	}
	if capacity < h.opts.Total+h.opts.Ranks*max(h.opts.Unit, 1) {
		batch.Limits = h.opts.Limits
	}
	return h.minimize(batch, h.sure)
}

func (h *hybrid) minimize(batch Batch, curves []Curve) (best []int, err error) {
	switch {
	case h.opts.Objective == Energy:
		return Cheapest(batch, curves, h.opts.Watts, h.opts.IdleWatts, h.opts.Slowdown)
	case h.opts.Objective == Cost && h.opts.Bench:
		return h.release(batch, curves)
	}
	if best, err = Solve(batch, curves); err != nil || !h.opts.Bench {
		return best, err
	}
	return h.bench(batch, curves, best)
}

// account names where the time of a step goes.
func (h *hybrid) account(d *Decision, best []int) {
	if h.opts.Objective != Time { // the oracle is the shortest step, whatever is wanted
		if fastest, err := Solve(h.opts.Batch, h.curves); err == nil {
			best = fastest
		}
	}
	now, _ := Slowest(h.curves, d.Shares)
	then, _ := Slowest(h.curves, best)
	then = min(then, now) // they were chosen with caution, which costs about a thousandth of it
	whole := h.divisible(best)
	e := &d.Explanation
	e.Oracle = then + e.Lost.Communication
	e.OfOracle = h.ofOracle(d, best, then)
	e.Lost.Imbalance = now - then
	if excess := e.Seconds - e.Oracle; excess < e.Lost.Imbalance { // curves expected a longer step than was measured
		e.Lost.Imbalance = max(excess, 0)
	}
	e.Lost.Granularity = max(then-whole, 0)
	e.Lost.Noise = max(e.Seconds-e.Oracle-e.Lost.Imbalance, 0)
}

// ofOracle is how near the shares in use are to the best ones, as far as the fits tell.
func (h *hybrid) ofOracle(d *Decision, best []int, then float64) Fraction {
	ranks := make([]prospect, len(h.ranks))
	for r, f := range h.fits {
		p := prospectOf(h.curves[r], d.Shares[r], best[r])
		if f != nil && d.Shares[r] > 0 {
			p.nowError = d.Ranks[r].Error
		}
		if p.bestError = p.nowError; f != nil && best[r] > 0 && best[r] != d.Shares[r] {
			p.bestError = f.sigma(float64(best[r]))
		}
		ranks[r] = p
	}
	return ofOracle(ranks, nil, then, d.Lost.Communication)
}

// divisible is the slowest time if samples could be cut: the time in which the ranks that best feeds do the batch.
func (h *hybrid) divisible(best []int) float64 {
	low, high := 0.0, 0.0
	for r, c := range h.curves {
		if best[r] > 0 {
			high = max(high, c.At(float64(best[r])))
		}
	}
	top := high
	ascents := make([]Curve, len(best))
	for r, c := range h.curves {
		ascents[r] = c.ascent()
	}
	for range 50 {
		mid := (low + high) / 2
		sum := 0.0
		for r, c := range ascents {
			if best[r] > 0 {
				sum += c.inverse(mid, float64(h.most[r]))
			}
		}
		if sum >= float64(h.opts.Total) {
			high = mid
		} else {
			low = mid
		}
	}
	return min(high, top)
}
