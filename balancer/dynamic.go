package balancer

import (
	"fmt"
	"math"
	"slices"
)

// dynamic follows the measured speed with a formula that weighs it against the static score:
//
//	performance = 1 / (time per sample)                      mean over the window, normalised over ranks
//	base        = compute score                              normalised over ranks
//	score       = (0.6 base + 0.4 performance) (1 - 0.2 utilization) (1 - 0.2 memory) straggler
//	share       = Total * score / sum of scores              largest remainder, at least 1
//
// straggler is 0.5 for a rank whose own time was over 1.5 times the median in two windows running, else 1. Time per sample, and not the
// iteration's time, is what makes it stand still where ranks are balanced: in synchronous training the iteration takes equally long everywhere.
type dynamic struct {
	opts   Options
	start  []int
	window *window
	median *MedianRule
	speed  []float64 // samples/s of each rank, the last one measured; 0: never
}

func newDynamic(o Options) (Policy, error) {
	start, err := o.Divide(o.scores())
	if err != nil {
		return nil, err
	}
	o.Bench = false // only hybrid does
	return &dynamic{opts: o, start: start, window: newWindow(o.Ranks, o.Interval), median: NewMedianRule(o.Ranks), speed: make([]float64, o.Ranks)}, nil
}

// Start implements [Policy].
func (d *dynamic) Start() []int { return slices.Clone(d.start) }

// Observe implements [Policy].
func (d *dynamic) Observe(s *Step) (*Decision, bool) {
	w := d.window
	if !w.add(s) {
		return nil, false
	}
	out := &Decision{Shares: slices.Clone(w.shares), Explanation: w.explain()}
	if out.Next, out.Reason = d.decide(); out.Next == nil {
		out.stay(&d.opts, d.start)
	} else {
		out.Changed, out.Reason = true, fmt.Sprintf("imbalance %.1f %%", 100*out.Imbalance)
	}
	w.next()
	return out, true
}

// keepSamples and keepFraction bound the changes of shares that are noise.
const (
	keepSamples  = 1
	keepFraction = 0.02
)

// decide returns the next shares, or why they stay.
func (d *dynamic) decide() ([]int, string) {
	w := d.window
	own := make([]float64, d.opts.Ranks)
	for r := range own {
		if own[r] = meanOf(w.own[r]).or(math.NaN()); own[r] > 0 {
			d.speed[r] = float64(w.shares[r]) / own[r]
		}
	}
	stragglers := d.median.Observe(own)
	scores := d.opts.scores()
	var sumScores, sumSpeeds float64
	for r, v := range d.speed {
		switch {
		case d.start[r] == 0: // left out by its limit
		case v == 0:
			return nil, fmt.Sprintf("rank %d was not measured", r)
		default:
			sumScores, sumSpeeds = sumScores+scores[r], sumSpeeds+v
		}
	}
	weight := make([]float64, d.opts.Ranks)
	for r := range weight {
		if weight[r] = 1; d.start[r] == 0 {
			continue
		}
		weight[r] = (0.6*scores[r]/sumScores + 0.4*d.speed[r]/sumSpeeds) * (1 - 0.2*fraction(w.use[r])) * (1 - 0.2*fraction(w.memory[r]))
		if stragglers[r] {
			weight[r] *= 0.5
		}
	}
	next, err := d.opts.Divide(weight)
	if err != nil {
		return nil, err.Error()
	}
	for r, n := range next {
		if move := math.Abs(float64(n - w.shares[r])); move > max(keepSamples*float64(max(d.opts.Unit, 1)), keepFraction*float64(w.shares[r])) {
			return next, ""
		}
	}
	return nil, "shares are as the formula wants them, up to noise"
}

func fraction(m mean) float64 { return min(max(m.or(0), 0), 1) }
