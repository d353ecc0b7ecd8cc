package balancer

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// posterior is the policy of that name: hybrid's successor, on trial. It decides on one probabilistic model of each
// rank's time ([speed], [shape]): after each window it takes the best shares on the expected curves if that gains more
// than may be noise, and else, now and then, tries shares that may be better (explore.go).
type posterior struct {
	opts   Options
	start  []int
	most   []int // samples of each rank: the end of its curve
	window *window
	ranks  []*speed
	alike  together
	bends  belief // of all ranks' curves

	mean []Curve // expected times, of a rank without measurements one that takes no time
	sure []Curve // likewise, of ranks as much slower as caution has it: shares are chosen on these

	seen      int // steps
	beyond    int // probes of larger shares so far
	decisions int
	calm      int     // decisions since the last change that was to gain, or since the last probe
	patience  int     // decisions without a change before the next probe
	probing   bool    // the shares in use are a probe's
	steady    float64 // s of a step in the last window that was no probe
}

const (
	firstSteps  = 3   // steps that the first decision rests on: equal shares of unequal ranks cost most
	postSigmas  = 0.3 // standard deviations of the slowest rank's curve that a change must gain
	probeSigmas = 1.5 // standard deviations by which a rank may be faster than its curve, for the sake of a probe
	beliefRanks = 8   // ranks that the bends' priors count as
)

func newPosterior(o Options) (Policy, error) {
	if o.Objective != Time || o.Bench {
		return nil, errors.New("got an objective other than time, or the option to exclude ranks: only policy hybrid supports these")
	}
	h := &posterior{opts: o, most: o.limits(o.Ranks), window: newWindow(o.Ranks, o.Interval), ranks: make([]*speed, o.Ranks), alike: newTogether(),
		bends: beforehand, mean: make([]Curve, o.Ranks), sure: make([]Curve, o.Ranks), patience: firstPatience}
	var err error
	if h.start, err = o.Divide(o.scores()); err != nil {
		return nil, err
	}
	curves, known := slices.Repeat([]Curve{timeless}, o.Ranks), o.Curves != nil
	for r, n := range h.start {
		h.mean[r], h.sure[r] = timeless, timeless
		var prior Curve
		if o.Curves != nil && n > 0 {
			prior = o.Curves[r]
			curves[r] = prior
			known = known && len(prior) > 0
		}
		h.ranks[r] = newSpeed(prior, h.most[r])
	}
	if known {
		h.start, err = Solve(o.Batch, curves)
	}
	return h, err
}

// Start implements [Policy].
func (h *posterior) Start() []int { return slices.Clone(h.start) }

// Curves implements [Learner].
func (h *posterior) Curves() []Curve {
	curves := slices.Clone(h.mean)
	for r, e := range h.ranks {
		if !e.known {
			curves[r] = nil
		}
	}
	return curves
}

// Observe implements [Policy].
func (h *posterior) Observe(s *Step) (*Decision, bool) {
	w := h.window
	h.seen++
	if !w.add(s) && !h.early() {
		return nil, false
	}
	if !h.probing {
		h.steady = w.seconds.or(h.steady)
	}
	h.probing = false
	h.learn()
	d := &Decision{Shares: slices.Clone(w.shares), Explanation: w.explain()}
	if d.Next, d.Reason = h.decide(d); d.Next == nil {
		d.stay(&h.opts, h.start)
	} else {
		d.Changed = !slices.Equal(d.Next, d.Shares)
	}
	w.next()
	return d, true
}

// early reports whether a window ends before its interval is over: the first one, and that of a probe that turned out
// to cost more than probes may.
func (h *posterior) early() bool {
	n := h.window.seconds.n
	if h.decisions == 0 {
		return n >= firstSteps
	}
	if !h.probing || n < endsAfter {
		return false
	}
	noise := 0.0
	for _, e := range h.ranks {
		noise = max(noise, e.noise)
	}
	return h.window.seconds.or(0) > h.steady*(1+probeCost+math.Sqrt(noise/float64(n)))
}

// learn takes the window into the ranks' speeds. A change that all ranks share is no rank's own: their curves follow it
// slowly, or at once where it lasts.
func (h *posterior) learn() {
	if h.decisions == 0 {
		h.poolNoise()
	}
	readings := make([]reading, len(h.ranks))
	for r, e := range h.ranks {
		readings[r] = e.read(h.window.shares[r], h.window.compute[r])
	}
	offset, variance, lasts := h.alike.estimate(readings)
	level := levelRate * offset
	if lasts {
		level = offset
	}
	for r, e := range h.ranks {
		if readings[r].samples > 0 {
			e.update(&readings[r], offset, variance)
		}
		e.move(level, 0)
	}
}

// poolNoise gives all ranks the noise that their first steps show together: the median rank's, so that a few disturbed
// ranks count little. A rank's own few steps tell little of it, and one that is believed too sure keeps a wrong height.
func (h *posterior) poolNoise() {
	const medianOfMean = 0.7 // median of a variance of three normal steps, as a fraction of its mean
	var variances []float64
	for _, seconds := range h.window.compute {
		if logs := logsOf(seconds); len(logs) > 1 {
			mean, variance := meanOf(logs).or(0), 0.0
			for _, l := range logs {
				variance += square(l-mean) / float64(len(logs)-1)
			}
			variances = append(variances, variance/medianOfMean)
		}
	}
	if n := float64(len(variances)); n > 0 {
		noise := (priorWeight*square(priorNoise) + n*(firstSteps-1)*median(variances)) / (priorWeight + n*(firstSteps-1))
		for _, e := range h.ranks {
			e.noise = noise
		}
	}
}

// fit draws all curves around the shares in use. missing is a rank that should have been measured, -1 if there is none.
func (h *posterior) fit(d *Decision) (missing int) {
	sigmas := 0.0
	if h.decisions >= settledAfter {
		sigmas = caution * math.Sqrt(2*math.Log(float64(len(h.ranks))))
	}
	votes := h.votes()
	for r, e := range h.ranks {
		if len(e.cells) == 0 && d.Shares[r] == 0 {
			continue
		}
		if e.current < 0 && d.Shares[r] > 0 {
			return r
		}
		b0 := float64(d.Shares[r])
		if b0 == 0 {
			b0 = e.cells[max(e.current, 0)].samples
		}
		if s := newShape(e.cells, e.cov, &h.bends, votes.without(e.shape), b0, e.shape.ownGrid()); s != nil {
			e.shape = s
		} else if e.shape == nil {
			return r
		}
		h.mean[r], h.sure[r] = e.shape.curves(h.most[r], sigmas)
		if e.trend != 0 { // as of the middle of the next window
			ahead := exp(e.trend * (boundarySteps + float64(h.opts.Interval)/2))
			h.mean[r] = h.mean[r].times(ahead)
			h.sure[r] = h.sure[r].times(ahead)
		}
		if d.Shares[r] > 0 {
			d.Ranks[r].Fitted, d.Ranks[r].Error = h.mean[r].At(b0), e.shape.sigma(b0)
		}
	}
	h.pool()
	return -1
}

// times is the curve with its times multiplied by a factor.
func (c Curve) times(factor float64) Curve {
	out := slices.Clone(c)
	for i := range out {
		out[i].Seconds = min(out[i].Seconds*factor, mostSeconds)
	}
	return out
}

// pool replaces the common belief in bends by the mean of the ranks' beliefs and the prior.
func (h *posterior) pool() {
	b, ranks := beforehand, float64(beliefRanks)
	for i := range b {
		b[i] *= ranks
	}
	for _, e := range h.ranks {
		if e.shape != nil && len(e.cells) >= 3 { // fewer tell no bends apart
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

// decide returns the next shares, or nil and why they stay.
func (h *posterior) decide(d *Decision) ([]int, string) {
	missing := h.fit(d)
	h.decisions++
	if missing >= 0 {
		return nil, fmt.Sprintf("rank %d was not measured", missing)
	}
	batch := h.reach()
	best, err := Solve(batch, h.sure)
	if err != nil {
		return nil, err.Error()
	}
	h.account(d, best)
	if !h.opts.valid(d.Shares, h.start) {
		return best, "shares in use are no division of the batch"
	}
	now, slowest := Slowest(h.sure, d.Shares)
	then, _ := Slowest(h.sure, best)
	gain, doubt := 1-then/now, postSigmas*h.ranks[slowest].shape.sigma(float64(d.Shares[slowest]))/now
	h.calm++
	if !slices.Equal(best, d.Shares) && gain >= leastGain+doubt {
		h.calm = 0
		return best, fmt.Sprintf("rank %d is the slowest; the step should get %.1f %% shorter", slowest, 100*gain)
	}
	if h.calm >= h.patience {
		if next, reason := h.explore(batch, d.Shares, now); next != nil {
			h.calm, h.probing = 0, true
			return next, reason
		}
	}
	return nil, fmt.Sprintf("a change would gain %.2f %%, which may be noise", 100*max(gain, 0))
}

// reach is the batch with what one decision may go to: from a quarter of the least share of a rank that was measured to
// four times the largest.
func (h *posterior) reach() Batch {
	batch := h.opts.Batch
	batch.Limits, batch.least = slices.Clone(h.most), make([]int, len(h.ranks))
	capacity := 0
	for r, e := range h.ranks {
		if len(e.cells) > 0 {
			order := func(a, b cell) int { return int(a.samples - b.samples) }
			batch.least[r] = min(int(slices.MinFunc(e.cells, order).samples/furthest), h.start[r])
			batch.Limits[r] = min(h.most[r], max(int(furthest*slices.MaxFunc(e.cells, order).samples), 2*max(h.opts.Unit, 1)))
		}
		capacity += batch.Limits[r]
	}
	if capacity < h.opts.Total+h.opts.Ranks*max(h.opts.Unit, 1) {
		batch.Limits = h.opts.limits(h.opts.Ranks)
	}
	return batch
}

// account names where the time of a step goes.
func (h *posterior) account(d *Decision, best []int) {
	now, _ := Slowest(h.mean, d.Shares)
	then, _ := Slowest(h.mean, best)
	then = min(then, now)
	e := &d.Explanation
	e.Oracle = then + e.Lost.Communication
	e.OfOracle = h.ofOracle(d, best, then)
	e.Lost.Imbalance = max(min(now-then, e.Seconds-e.Oracle), 0)
	e.Lost.Noise = max(e.Seconds-e.Oracle-e.Lost.Imbalance, 0)
}

// ofOracle estimates from the posterior how near the shares in use are to the best ones.
func (h *posterior) ofOracle(d *Decision, best []int, then float64) Fraction {
	ranks := make([]prospect, len(h.ranks))
	for r, s := range h.ranks {
		p := prospectOf(h.mean[r], d.Shares[r], best[r])
		if s.shape != nil && d.Shares[r] > 0 {
			p.nowError = d.Ranks[r].Error
		}
		if p.bestError = p.nowError; s.shape != nil && best[r] > 0 && best[r] != d.Shares[r] {
			p.bestError = s.shape.sigma(float64(best[r]))
		}
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
	return ofOracle(ranks, list, then, d.Lost.Communication)
}
