package policies

import (
	"fmt"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
	"github.com/hetero-train/hetero-train/balancer/internal/window"
	"github.com/hetero-train/hetero-train/balancer/straggler"
)

// dynamic computes shares from the measured speed and the static score of each rank:
//
//	performance = 1 / (time per sample)                      mean over the window, normalised over ranks
//	base        = compute score                              normalised over ranks
//	score       = (0.6 base + 0.4 performance) (1 - 0.2 utilization) (1 - 0.2 memory) straggler
//	share       = Total * score / sum of scores              largest remainder, at least 1
//
// straggler is 0.5 for a rank whose own time was over 1.5 times the median in two consecutive windows ("consistently
// slow"), else 1. With half the share, a straggler takes about half the time, and its measured time no longer exceeds
// the bound. The policy would then restore and halve this share again and again. It therefore estimates the times of
// all ranks at the shares that the formula gives without this factor. A rank remains a straggler until this time is
// below 1.25 times the median in two consecutive windows. Whenever a rank becomes a straggler again, this number of
// windows doubles, because the estimate is wrong if times are not linear in the share.
//
// The formula uses the time per sample and not the time of the iteration. In synchronous training, the time of an
// iteration is equal on all ranks, so a formula that used it would return to equal shares.
type dynamic struct {
	opts   balancer.Options
	start  []int
	window *window.Window
	median *straggler.MedianRule
	slow   []bool    // ranks that are consistently slow
	calm   []int     // by rank: consecutive windows below the lower bound
	proof  []int     // by rank: number of these windows after which it is no longer slow
	speed  []float64 // last measured samples/s of each rank; 0: never measured
}

const (
	stragglerScore = 0.5  // factor of a straggler's score
	clearedFactor  = 1.25 // lower bound of the hysteresis, times the median. Larger: noise of 10 % restores shares
)

func newDynamic(o balancer.Options) (balancer.Policy, error) {
	start, err := o.Divide(o.ScoresOrEqual())
	if err != nil {
		return nil, err
	}
	o.Bench = false // only policy hybrid excludes ranks without worth
	return &dynamic{opts: o, start: start, window: window.New(o.Ranks, o.Interval),
		median: straggler.NewMedianRule(o.Ranks),
		slow:   make([]bool, o.Ranks), calm: make([]int, o.Ranks), proof: make([]int, o.Ranks),
		speed: make([]float64, o.Ranks)}, nil
}

// Start implements [balancer.Policy].
func (d *dynamic) Start() []int { return slices.Clone(d.start) }

// Observe implements [balancer.Policy].
func (d *dynamic) Observe(s *balancer.Step) (*balancer.Decision, bool) {
	w := d.window
	if !w.Add(s) {
		return nil, false
	}
	out := &balancer.Decision{Shares: slices.Clone(w.Shares), Explanation: w.Explain()}
	if out.Next, out.Reason = d.decide(); out.Next == nil {
		out.Stay(&d.opts, d.start)
	} else {
		out.Changed, out.Reason = true, fmt.Sprintf("imbalance %.1f %%", 100*out.Imbalance)
	}
	w.Next()
	return out, true
}

// Changes of shares up to keepSamples samples (or units), or up to the fraction keepFraction of a share, count as
// noise.
const (
	keepSamples  = 1
	keepFraction = 0.02
)

// decide returns the next shares, or the reason to keep the current shares.
func (d *dynamic) decide() ([]int, string) {
	w := d.window
	own := make([]float64, d.opts.Ranks)
	for r := range own {
		if own[r] = stat.MeanOf(w.Own[r]).Or(math.NaN()); own[r] > 0 {
			d.speed[r] = float64(w.Shares[r]) / own[r]
		}
	}
	weight, missing := d.weights()
	if missing >= 0 {
		return nil, fmt.Sprintf("the time of rank %d was not measured", missing)
	}
	full, err := d.opts.Divide(weight)
	if err != nil {
		return nil, err.Error()
	}
	d.judge(own, full)
	for r, slow := range d.slow {
		if slow {
			weight[r] *= stragglerScore
		}
	}
	next, err := d.opts.Divide(weight)
	if err != nil {
		return nil, err.Error()
	}
	for r, n := range next {
		if move := math.Abs(float64(n - w.Shares[r])); move > max(keepSamples*float64(max(d.opts.Unit, 1)),
			keepFraction*float64(w.Shares[r])) {
			return next, ""
		}
	}
	return nil, "the shares that the formula gives differ too little from the current shares"
}

func fraction(m stat.Mean) float64 { return min(max(m.Or(0), 0), 1) }

// weights returns the scores of the ranks without the factor of stragglers. missing is a rank that was never measured,
// or -1.
func (d *dynamic) weights() (weight []float64, missing int) {
	w, scores := d.window, d.opts.ScoresOrEqual()
	var sumScores, sumSpeeds float64
	for r, v := range d.speed {
		switch {
		case d.start[r] == 0: // the limit of the rank is 0
		case v == 0:
			return nil, r
		default:
			sumScores, sumSpeeds = sumScores+scores[r], sumSpeeds+v
		}
	}
	weight = slices.Repeat([]float64{1}, d.opts.Ranks)
	for r := range weight {
		if d.start[r] > 0 {
			weight[r] = (0.6*scores[r]/sumScores + 0.4*d.speed[r]/sumSpeeds) * (1 - 0.2*fraction(w.Use[r])) *
				(1 - 0.2*fraction(w.Memory[r]))
		}
	}
	return weight, -1
}

// judge finds the ranks that are consistently slow, from their own times (s) in this window. full contains the shares
// that the formula gives without the factor of stragglers.
func (d *dynamic) judge(own []float64, full []int) {
	restored := make([]float64, len(own)) // times in s with the shares in full; their median differs from that of own
	for r, seconds := range own {
		restored[r] = seconds * float64(full[r]) / float64(d.window.Shares[r]) // NaN of a rank without samples
	}
	limit := clearedFactor * d.median.Median(restored)
	for r, over := range d.median.Observe(own) {
		switch {
		case !d.slow[r]:
			if d.slow[r] = over; over {
				d.calm[r], d.proof[r] = 0, max(straggler.Windows, 2*d.proof[r])
			}
		case restored[r] < limit:
			d.calm[r]++
			d.slow[r] = d.calm[r] < d.proof[r]
		default:
			d.calm[r] = 0
		}
	}
}
