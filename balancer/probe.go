package balancer

import (
	"math"
	"slices"
)

const (
	firstPatience = 2     // decisions without a change before a probe
	patienceGrows = 1.3   // times with each probe
	mostPatience  = 1024  // decisions: a run never stops asking
	settledAfter  = 30    // decisions after which ranks are hoped to be faster, and feared to be slower: earlier the shares are on their way
	hope          = 2.0   // standard deviations of its curve by which a rank may be faster
	beyond        = 1.2   // times the share of a valley: what is tried beyond it
	probeGain     = 0.005 // of a step: what ranks must possibly be able to do better
	probeCost     = 0.05  // of a step: what a rank may take longer, as its curve says, while a probe lasts
	probeNoise    = 0.014 // standard deviation that the mean of a probe's windows should have: the more they vary, the longer it lasts,
	probePart     = 0.05  // but no longer than this part of all decisions so far, and than what lies between probes
)

// probe is shares that may turn out better than others although the curves do not say so, or not beyond doubt: the best ones if each rank were as much faster as
// is easily possible. A rank may well take no longer for more samples (small batches leave a GPU's multiprocessors idle; kernels work in whole tiles), and at shares
// near those that were measured its curve is known worse the more it bends. No rank takes more than probeCost longer than a step does, as far as is known: one for
// which a sample more is too much is in the way of no other. nil: nothing is to be found out.
func (h *hybrid) probe(from []int, cost float64) []int {
	hoped := slices.Clone(h.curves)
	for r, f := range h.fits {
		if f != nil && h.decisions >= settledAfter {
			_, hoped[r] = f.curves(h.most[r], -hope)
		}
	}
	expected, _ := Slowest(h.curves, from)
	batch := h.opts.Batch
	batch.Limits, batch.least = make([]int, len(from)), make([]int, len(from))
	for r, n := range from { // a probe goes to twice the share at most, and wakes no benched rank
		if n == 0 {
			continue
		}
		batch.Limits[r] = max(n, h.curves[r].most(expected*(1+probeCost), min(h.most[r], max(2*n, n+max(h.opts.Unit, 1)))))
		if p := h.fasterWith(r, n, expected); p.Samples > 0 {
			hoped[r] = Curve{{float64(n), h.curves[r].At(float64(n))}, p}
			batch.Limits[r], batch.least[r] = int(p.Samples), int(p.Samples) // the very share, or what is measured says nothing of what is known of it
		}
	}
	best, err := Solve(batch, hoped)
	if err != nil {
		batch.least = nil
		best, err = Solve(batch, hoped)
	}
	if err != nil || !h.opts.valid(best, h.start) {
		return nil
	}
	current, _ := Slowest(hoped, from)
	possible, _ := Slowest(hoped, best)
	if 1-possible/current < max(probeGain, cost) {
		return nil
	}
	return best
}

// fasterWith is a larger share with which a rank may take less time than now, and the time that is hoped for, of one that holds up a step that is expected to take so
// long, however few samples it has: the share with which it once did take less, or else, where its curve is known to fall, one somewhat beyond its valley. No samples: there is none.
func (h *hybrid) fasterWith(rank, now int, expected float64) (p Point) {
	curve, e := h.curves[rank], h.ranks[rank]
	current := curve.At(float64(now))
	if min(current, curve.At(float64(max(h.opts.Unit, 1)))) < expected*(1-probeCost) {
		return p
	}
	valley, next := curve.ascent()[0].Samples, float64(h.most[rank])
	p.Seconds = current * (1 - leastFall)
	for i, c := range e.cells {
		if c.samples > valley {
			next = min(next, c.samples)
		}
		hoped := exp(c.log - c.doubt + math.Sqrt(e.cov[i][i]))
		if c.samples > float64(now) && c.samples <= float64(h.most[rank]) && hoped < p.Seconds && exp(c.log)-current < payBack*(current-hoped) {
			p = Point{c.samples, hoped}
		}
	}
	if p.Samples > 0 || valley == curve[0].Samples {
		return p
	}
	at := math.Floor(max(min(math.Sqrt(valley*next), beyond*valley), valley+float64(h.opts.Unit)))
	f := h.fits[rank]
	if possible := f.mean(at) - hope*f.sigma(at); at > float64(now) && at < next && next >= beyond*valley && possible < p.Seconds {
		p = Point{at, max(possible, 0)}
	}
	return p
}

// goOn is the next shares of a probe that is under way, asked of the newest curves: who turned out slow has the best share again, and none is held up by the hurdle
// of a change. nil: the probe is over, since it has lasted long enough, nothing is to be found out any more, or other ranks than now should have samples.
func (h *hybrid) goOn(now, best []int, cost float64) (next []int) {
	h.probing--
	if h.probing > 0 && slices.EqualFunc(now, best, func(a, b int) bool { return (a > 0) == (b > 0) }) {
		next = h.probe(best, cost)
	}
	if next == nil {
		h.probing = 0
	}
	return next
}

// probeLasts is the decisions that a probe takes.
func (h *hybrid) probeLasts() int {
	var windows []float64 // variances of their means
	for _, e := range h.ranks {
		if e.current >= 0 {
			windows = append(windows, e.noise/float64(h.opts.Interval)+e.jitter)
		}
	}
	return int(max(min(median(windows)/square(probeNoise), probePart*float64(h.decisions), float64(h.patience)), 1))
}
