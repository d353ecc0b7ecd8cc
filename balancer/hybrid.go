package balancer

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
	"github.com/hetero-train/hetero-train/profiler/account"
)

// hybrid starts with shares by the scores, or on the curves of an earlier run. It decides on one probabilistic model of
// each rank's time ([speed], [shape]). After each window it takes the best shares on the expected curves if their gain
// exceeds its doubt and the price of a change. Otherwise it probes shares that may be better, if that pays (explore.go).
type hybrid struct {
	opts   Options
	start  []int
	equal  []int  // the shares of policy none
	fed    []bool // ranks that can have samples
	most   []int  // samples of each rank: the end of its curve
	window *window
	ranks  []*speed
	alike  together

	kin     [][]int // ranks of one type
	lenders [][]int // by rank: ranks of the same type whose measurements it uses
	bends   belief  // belief in the bends of all curves

	fastest []fastest      // by rank
	curves  []divide.Curve // expected times; a rank without measurements takes no time
	sure    []divide.Curve // expected times plus a margin, for the choice of shares
	shrunk  []float64      // by rank: factor of shrink on its curves,
	unsure  []float64      // and on their standard error
	benched []int          // by rank: decisions without samples; 0: the rank has samples
	recall  []int          // decisions after which an excluded rank is tried again

	informed  bool      // scores, or curves of all ranks, gave the first shares
	spread    stat.Mean // square deviation of the log of a step's time from the mean of its window, in the first windows
	unrest    int       // remaining windows of the disturbance; 0: there is none
	falls     int       // probes of falls so far
	left      int       // remaining steps of the run; 0: unknown
	decisions int
	calm      int     // decisions since the last probe, or since the last change for a gain
	patience  int     // decisions without a change before the next probe; 1 at first
	probing   bool    // the shares in use are those of a probe
	steady    float64 // step time in the last window without a probe, s

	change float64 // s: price of a change of shares, averaged over the last ones
	extra  float64 // time beyond steady in the current change, s
}

func newHybrid(o Options) (Policy, error) {
	h := &hybrid{opts: o, most: o.Capacities(o.Ranks), window: newWindow(o.Ranks, o.Interval), ranks: make([]*speed, o.Ranks), alike: newTogether(), bends: beforehand,
		fastest: make([]fastest, o.Ranks), curves: make([]divide.Curve, o.Ranks), sure: make([]divide.Curve, o.Ranks), patience: 1, shrunk: slices.Repeat([]float64{1}, o.Ranks), unsure: slices.Repeat([]float64{1}, o.Ranks), benched: make([]int, o.Ranks), recall: slices.Repeat([]int{recallFirst}, o.Ranks)}
	var err error
	if h.start, err = o.Divide(o.scores()); err != nil {
		return nil, err
	}
	if h.equal, err = o.Divide(slices.Repeat([]float64{1}, o.Ranks)); err != nil {
		return nil, err
	}
	curves, known := slices.Repeat([]divide.Curve{timeless}, o.Ranks), o.Curves != nil
	for r, n := range h.start {
		h.fed, h.curves[r], h.sure[r] = append(h.fed, n > 0), timeless, timeless
		var prior divide.Curve
		sigma := 0.0
		if o.Curves != nil && n > 0 {
			prior = o.Curves[r]
		}
		if o.CurveErrors != nil {
			sigma = o.CurveErrors[r]
		}
		h.ranks[r] = newSpeed(prior, sigma, h.most[r])
		if n > 0 {
			curves[r] = h.ranks[r].shape.between(prior, h.most[r])
			known = known && len(prior) > 0
		}
	}
	h.informed = o.Scores != nil || known
	if h.kin = o.kin(); len(h.kin) > 0 {
		h.lenders = make([][]int, o.Ranks)
	}
	if known {
		h.start, err = divide.Solve(o.Batch, curves)
	}
	return h, err
}

// timeless is the curve of a rank without measurements: it takes no time.
var timeless = divide.Curve{{Samples: 1, Seconds: 0}}

// Start implements [Policy].
func (h *hybrid) Start() []int { return slices.Clone(h.start) }

// Curves implements [Learner].
func (h *hybrid) Curves() []divide.Curve {
	curves := slices.Clone(h.curves)
	for r, e := range h.ranks {
		if !e.known {
			curves[r] = nil
		}
	}
	return curves
}

// Observe implements [Policy].
func (h *hybrid) Observe(s *Step) (*Decision, bool) {
	h.priceChange(s)
	w := h.window
	h.left = s.Left
	if !w.add(s) && !h.early() {
		return nil, false
	}
	if !h.probing {
		h.steady = w.seconds.Or(h.steady)
	}
	h.probing = false
	h.learn()
	d := &Decision{Shares: slices.Clone(w.shares), Explanation: w.explain()}
	if d.Next, d.Reason = h.decide(d); d.Next == nil {
		d.stay(&h.opts, h.start)
	} else {
		d.Changed = !slices.Equal(d.Next, d.Shares)
	}
	h.predict(d)
	w.next()
	return d, true
}

// priceChange measures the price of a change of shares: the extra time of the steps in which plans are made, and of the
// first step with the new shares. The price has a limit, so that a jump of the clock does not stop the balancing.
func (h *hybrid) priceChange(s *Step) {
	changed := h.window.shares != nil && !slices.Equal(s.Shares, h.window.shares)
	if h.steady > 0 && (s.Settling || changed) && divide.Measured(s.Seconds) > h.steady {
		h.extra += s.Seconds - h.steady
	}
	if !changed {
		return
	}
	if h.change == 0 {
		h.change = h.extra
	}
	h.change += follow * (h.extra - h.change)
	h.change = min(h.change, mostCost*payBack*float64(h.opts.Interval)*h.steady)
	h.extra = 0
}

// length returns the number of steps of the next window. Unless h is informed, the first shares are equal and cost
// most, so the first windows have 1, 2, 4, … steps. One step does not show its noise. If the interval has no room for a
// later window of more steps, the first window is as long as the interval.
func (h *hybrid) length() int {
	switch {
	case !h.informed && h.opts.Interval > fewSteps:
		return min(1<<min(h.decisions, bits.Len(uint(h.opts.Interval))), h.opts.Interval)
	case h.decisions == 0:
		return min(fewSteps, h.opts.Interval)
	}
	return h.opts.Interval
}

// Opening implements [Opener].
func (h *hybrid) Opening() int { return h.length() }

// early reports whether a window ends before its interval is over: one of the first windows, or that of a probe that
// turned out to cost more than probes may.
func (h *hybrid) early() bool {
	n := h.window.seconds.N
	if n >= h.length() {
		return true
	}
	if !h.probing || n < fewSteps {
		return false
	}
	noise := 0.0
	for _, e := range h.ranks {
		noise = max(noise, e.noise)
	}
	return h.window.usual() > h.steady*(1+probeCost+math.Sqrt(noise/float64(n)))
}

// learn updates the speeds of the ranks with the window. A change that all ranks have in common is not attributed to a
// rank: the curves follow it slowly, or at once if it lasts.
func (h *hybrid) learn() {
	opening := h.decisions == 0 || h.length() < h.opts.Interval
	if opening {
		h.poolNoise()
	}
	readings := make([]reading, len(h.ranks))
	logs := make([][]float64, len(h.ranks))
	for r, seconds := range h.window.compute {
		logs[r] = logsOf(seconds)
		h.fastest[r].add(h.window.shares[r], seconds)
	}
	noise := make([]float64, len(h.ranks))
	for r, e := range h.ranks {
		noise[r] = e.noise
	}
	withoutCommon(logs, stat.Median(noise))
	for r, e := range h.ranks {
		if readings[r] = e.read(h.window.shares[r], logs[r], opening); !h.informed {
			h.doubtStart(e, &readings[r])
		}
		switch m := &readings[r]; {
		case h.unrest > 0 && e.ended(m, h.alike.variance):
			e.restore()
		case h.unrest == 1 && e.mayEnd(m, h.alike.variance):
			e.try()
		default:
			continue
		}
		e.compare(&readings[r])
	}
	offset, variance, lasts := h.alike.estimate(readings)
	level := follow * offset
	if lasts {
		level = offset
	}
	jumped := lasts && math.Abs(offset) > leastJump
	for r, e := range h.ranks {
		calm := !lasts
		if m := &readings[r]; m.samples > 0 {
			calm = calm && e.calm(m, offset)
			jumped = e.update(m, offset, variance) || jumped
		}
		e.move(level, 0)
		if e.away++; calm && h.unrest == 0 && h.decisions > 0 {
			e.keep()
		}
	}
	if h.unrest = max(h.unrest-1, 0); jumped {
		h.unrest = memory
	}
}

// doubtStart makes the reading of the first step uncertain, because this step also contains the start of the program.
// The start can only make a step longer. If a rank is faster in the second window than the first step predicts, the
// first step says little about the rank. If the rank is much faster, it says nothing.
func (h *hybrid) doubtStart(e *speed, m *reading) {
	switch {
	case h.decisions == 0:
		m.variance += stat.Square(startError)
	case h.decisions == 1 && m.samples > 0 && len(e.cells) == 1:
		expected, _ := e.expect(m.samples)
		if faster := expected - m.log; faster > startDropped && m.samples != e.cells[0].samples {
			e.cells, e.cov = e.cells[:0], e.cov[:0]
		} else {
			e.cov[0][0] += stat.Square(likelySigmas * max(faster, 0))
		}
	}
}

// poolNoise gives all ranks the noise that the first windows of all ranks show together, because the few steps of one
// rank say little about its noise. It uses the median over the ranks, so that a few disturbed ranks count little. The
// variance of the measured times follows the change of the noise. Otherwise a rank that underestimated its noise in the
// first steps would trust these steps for many windows.
func (h *hybrid) poolNoise() {
	var variances, roots []float64
	n := 0 // degrees of freedom of all variances
	for _, seconds := range h.window.compute {
		if free := len(seconds) - 1; free > 0 {
			logs, squares := logsOf(seconds), 0.0
			center := stat.MeanOf(logs).Or(0)
			for _, l := range logs {
				squares += stat.Square(l - center)
			}
			variances, roots = append(variances, squares/float64(free)), append(roots, 1-2/(9*float64(free)))
			n += free
		}
	}
	if n == 0 {
		return
	}
	// The median of a variance is smaller than its mean, by the third power of root (Wilson and Hilferty). The median of
	// two values is their mean.
	for i, root := range roots {
		if len(variances) > 2 {
			variances[i] /= root * root * root
		}
	}
	h.spread.Sum, h.spread.N = h.spread.Sum+float64(n)*stat.Median(variances), h.spread.N+n
	noise := (priorWeight*stat.Square(priorNoise) + h.spread.Sum) / (priorWeight + float64(h.spread.N))
	for _, e := range h.ranks {
		for i, c := range e.cells {
			if c.steps > 0 {
				e.cov[i][i] += (noise - e.noise) / float64(c.steps)
			}
		}
		e.noise = noise
	}
}

// fit computes all curves around the shares in use. missing is a rank that should have been measured, or -1.
func (h *hybrid) fit(d *Decision) (missing int) {
	sigmas := 0.0
	// A slowdown is relative to the shortest step, without a margin.
	if h.decisions >= settledAfter && h.opts.Objective == Time {
		sigmas = caution * math.Sqrt(2*math.Log(float64(len(h.ranks))))
	}
	votes := h.votes()
	h.lend()
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
		if !h.follows(r, b0) {
			cells, cov := h.knowledge(r)
			if e.draw(cells, cov, &h.bends, votes.without(e.shape), b0); e.shape == nil {
				return r
			}
			h.curves[r], h.sure[r] = e.shape.curves(h.most[r], sigmas)
			h.shrunk[r], h.unsure[r] = 1, 1
			e.drawn, e.level = math.NaN(), 0
			if e.current >= 0 && e.trend == 0 {
				e.drawn = e.cells[e.current].log
			}
		}
		if e.trend != 0 { // as of the middle of the next window
			h.scale(r, stat.Exp(e.trend*(boundarySteps+float64(h.opts.Interval)/2)))
		}
		if d.Shares[r] > 0 {
			d.Ranks[r].Fitted, d.Ranks[r].Error = h.curves[r].At(b0), e.shape.sigma(b0)
		}
	}
	h.shrink(d)
	h.pool()
	for r := range h.ranks {
		one := &h.curves[r][0] == &h.sure[r][0]
		if h.curves[r] = h.fastest[r].bound(h.curves[r]); one {
			h.sure[r] = h.curves[r]
		} else {
			h.sure[r] = h.fastest[r].bound(h.sure[r])
		}
	}
	return -1
}

// follows scales the curve of a rank by the change of its time at the share in use, and reports whether the curve needs
// no new fit in this window. With many ranks, each curve is fitted again only every few windows, unless its measured
// shares change.
func (h *hybrid) follows(rank int, share float64) bool {
	e := h.ranks[rank]
	f := e.shape
	if len(h.ranks) <= manyRanks || (h.decisions+rank)%drawnEvery == 0 || h.decisions == settledAfter || f == nil || f.b0 != share || e.trend != 0 ||
		len(f.known) < len(e.cells) || !slices.EqualFunc(e.cells, f.known[:len(e.cells)], func(a, b cell) bool { return a.samples == b.samples }) {
		return false
	}
	moved := stat.Exp(e.cells[e.current].log - e.drawn)
	if !(moved > 0.9 && moved < 1.1) {
		return false
	}
	h.scale(rank, moved/h.shrunk[rank]) // shrink follows, and starts from curves that it has not moved
	e.drawn, h.shrunk[rank], h.unsure[rank] = e.cells[e.current].log, 1, 1
	return true
}

// scale multiplies the times of a rank's curves by a factor.
func (h *hybrid) scale(rank int, factor float64) {
	one := &h.curves[rank][0] == &h.sure[rank][0]
	if h.curves[rank] = times(h.curves[rank], factor); one {
		h.sure[rank] = h.curves[rank]
	} else {
		h.sure[rank] = times(h.sure[rank], factor)
	}
}

// pool replaces the common belief in bends by the mean of the beliefs of the ranks and of the prior.
func (h *hybrid) pool() {
	b, ranks := beforehand, believers
	for i := range b {
		b[i] *= ranks
	}
	for _, e := range h.ranks {
		if e.shape != nil && len(e.cells) >= 3 { // fewer cells do not distinguish bends
			ranks++
			for i, c := range e.shape.bends {
				b[i] += c
			}
		}
	}
	for i := range b {
		b[i] /= ranks
	}
	h.bends = b
}

// decide returns the next shares, or nil and the reason to keep the shares.
func (h *hybrid) decide(d *Decision) ([]int, string) {
	missing := h.fit(d)
	h.decisions++
	if missing >= 0 {
		d.Unknown = fmt.Sprintf("the time of rank %d was not measured", missing)
		return nil, d.Unknown
	}
	batch := h.reach()
	best, err := h.minimize(batch, h.sure)
	if err != nil {
		return nil, err.Error()
	}
	h.explain(d, best)
	if !h.opts.valid(d.Shares, h.start) {
		return best, "the shares in use are not a valid division of the batch"
	}
	if h.recalls(d, best) {
		return best, "an excluded rank gets samples again, to measure its speed"
	}
	if next, rank := h.confirm(batch, d.Shares, best); next != nil {
		h.probing = true
		return next, fmt.Sprintf("rank %d gets an earlier share again, to check whether its speed has changed", rank)
	}
	g := h.gain(d, best)
	h.calm++
	switch {
	case slices.Equal(best, d.Shares):
		g.fraction, g.reason = 0, "the current shares are the best ones"
	case g.fraction >= max(leastGain+g.doubt, g.cost):
		h.calm = 0
		return best, g.reason
	case g.fraction < leastGain+g.doubt:
		g.reason = fmt.Sprintf("a change of shares would save %.2f %%, which may be noise", 100*max(g.fraction, 0))
	default:
		g.reason = fmt.Sprintf("a change of shares would save %.2f %%, less than the change costs", 100*g.fraction)
	}
	// The one or two steps of the first window say little about the ranks.
	if h.opts.Objective == Time && h.calm >= h.patience && h.decisions > 1 {
		now, _ := divide.Slowest(h.sure, d.Shares)
		if next, reason := h.explore(batch, d.Shares, now); next != nil {
			h.calm, h.probing = 0, true
			return next, reason
		}
	}
	return nil, g.reason
}

// reach returns the batch with the limits of one decision: from a twelfth of the smallest measured share of a rank to
// four times the largest.
func (h *hybrid) reach() divide.Batch {
	batch := h.opts.Batch
	batch.Limits, batch.Least = slices.Clone(h.most), make([]int, len(h.ranks))
	capacity := 0
	for r, e := range h.ranks {
		if e.shape != nil {
			order := func(a, b place) int { return cmp.Compare(a.samples, b.samples) }
			batch.Least[r] = min(int(slices.MinFunc(e.shape.cells, order).samples/furthestDown), h.start[r])
			batch.Limits[r] = min(h.most[r], max(int(furthest*slices.MaxFunc(e.shape.cells, order).samples), 2*max(h.opts.Unit, 1)))
		}
		capacity += batch.Limits[r]
	}
	if capacity < h.opts.Total+h.opts.Ranks*max(h.opts.Unit, 1) {
		batch.Limits = h.opts.Capacities(h.opts.Ranks)
	}
	return batch
}

// minimize returns the best shares for the objective.
func (h *hybrid) minimize(batch divide.Batch, curves []divide.Curve) (best []int, err error) {
	switch {
	case h.opts.Objective == Energy:
		return divide.Cheapest(batch, curves, h.opts.Watts, h.opts.IdleWatts, h.opts.Slowdown)
	case h.opts.Objective == Cost && h.opts.Bench:
		return h.release(batch, curves)
	}
	if best, err = divide.Solve(batch, curves); err != nil || !h.opts.Bench {
		return best, err
	}
	return h.bench(batch, curves, best)
}

// explain adds to a decision how good the shares in use are, compared with the best shares.
func (h *hybrid) explain(d *Decision, best []int) {
	if h.opts.Objective != Time { // the oracle has the shortest step with every objective
		if fastest, err := divide.Solve(h.opts.Batch, h.curves); err == nil {
			best = fastest
		}
	}
	now, _ := divide.Slowest(h.curves, d.Shares)
	then, _ := divide.Slowest(h.curves, best)
	equally, _ := divide.Slowest(h.curves, h.equal)
	then = min(then, now) // the margin of sure costs about a thousandth
	e, exposed := &d.Explanation, h.window.exposed.Or(0)
	e.Fitted, e.Oracle = now+exposed, then+exposed
	e.OfOracle, e.Unknown = h.ofOracle(d, best, then, exposed), ""
	if h.window.account.Steps() > 0 {
		e.Lost = h.window.account.Account(account.Split{Oracle: e.OfOracle.Value, Granularity: max(then-divide.Divisible(h.opts.Total, h.curves, best, h.most), 0) / (now + exposed)}, account.Memory{})
		e.Equal = e.Lost.With(now, equally)
	}
}

// predict adds the time of a step with the next shares to an explained decision.
func (h *hybrid) predict(d *Decision) {
	if e := &d.Explanation; e.Equal == e.Equal {
		now, _ := divide.Slowest(h.curves, d.Shares)
		then, _ := divide.Slowest(h.curves, d.Next)
		e.Predicted = e.Lost.With(now, then)
	}
}

// ofOracle estimates the fraction of the oracle from the posterior.
func (h *hybrid) ofOracle(d *Decision, best []int, then, exposed float64) Fraction {
	ranks := make([]prospect, len(h.ranks))
	for r, s := range h.ranks {
		p := prospectOf(h.curves[r], d.Shares[r], best[r])
		if s.shape != nil && d.Shares[r] > 0 {
			p.nowError = d.Ranks[r].Error
		}
		if p.bestError = p.nowError; s.shape != nil && best[r] > 0 && best[r] != d.Shares[r] {
			p.bestError = s.shape.sigma(float64(best[r]))
		}
		p.nowError, p.bestError = p.nowError*h.unsure[r], p.bestError*h.unsure[r]
		ranks[r] = p
	}
	var list []unseen
	give := gives(ranks)
	for i := range tiles {
		chance, part := 0.0, 0.0
		for r, s := range h.ranks {
			if best[r] > 0 && best[r] >= tiles[i].period && s.shape.misses(&tiles[i]) {
				w := 1 / (ranks[r].slope * give)
				chance, part = chance+w*s.shape.chances[i], part+w
			}
		}
		if part > 0 {
			list = append(list, unseen{chance / part, part})
		}
	}
	return ofOracle(ranks, list, then, exposed, float64(max(h.opts.Unit, 1)))
}
