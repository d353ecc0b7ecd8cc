package hybrid

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// The fraction of the oracle comes from the curves. Readers see it next to the busy times of the window and to their
// imbalance. Each of the three can be right and seem to contradict the others. If they clearly do, a decision says why.

const (
	// contradicts is the distance of the fraction by the busy times from the interval of the fraction of the oracle
	// from which a decision says why both differ, beyond what noise explains. Larger: false curves are not noticed.
	contradicts = 0.1
	// unequal is the difference of the imbalance, without noise, from the largest loss that the interval of the
	// fraction of the oracle allows, from which a decision says why both differ.
	unequal = 0.3
)

// measured are times of a window besides the means of busy times.
type measured struct {
	own, steps [][]float64 // by rank and step: without the update, and busy times, s
	exposed    float64     // communication, s
}

// extremes returns about how far noise takes the slowest of equal ranks from their mean, log: in a step, and in the
// mean of the window. This is the mean of the largest of n normal values (Blom, Statistical Estimates and Transformed
// Beta-Variables, 1958). The median absolute deviation ignores a few slow steps, because these need an explanation.
func (m *measured) extremes() (step, window float64) {
	var sigmas []float64
	most := 1
	for _, times := range m.steps {
		if len(times) == 0 {
			continue
		}
		middle, off := stat.Median(times), make([]float64, len(times))
		for i, s := range times {
			off[i] = math.Abs(s/middle - 1)
		}
		sigmas, most = append(sigmas, stat.MADToSigma*stat.Median(off)), max(most, len(times))
	}
	if len(sigmas) == 0 {
		return 0, 0
	}
	n := float64(len(sigmas))
	step = stat.Median(sigmas) * math.Sqrt2 * math.Erfinv(2*(n-0.375)/(n+0.25)-1)
	return step, step / math.Sqrt(float64(most))
}

// proportion are the times of the ranks for other shares, if their times are in proportion to their samples.
type proportion struct {
	*chooser
	shares   []int
	seconds  func(rank int) float64 // with the shares in use
	exposed  float64                // communication, s
	longest  int                    // rank
	shortest int                    // rank
	least    float64                // shortest step without limits and units of shares, s

	shortestWhole float64 // result of whole; 0: not yet computed
}

// inProportion returns false if the time of a rank is unknown.
func (c *chooser) inProportion(shares []int, seconds func(rank int) float64, exposed float64) (p proportion, ok bool) {
	p = proportion{chooser: c, shares: shares, seconds: seconds, exposed: exposed, longest: -1, shortest: -1}
	speed := 0.0
	for r, n := range shares {
		if n == 0 {
			continue
		}
		s := seconds(r)
		if !(s > 0) {
			return p, false
		}
		if speed += float64(n) / s; p.longest < 0 || s > seconds(p.longest) {
			p.longest = r
		}
		if p.shortest < 0 || s < seconds(p.shortest) {
			p.shortest = r
		}
	}
	p.least = float64(c.opts.Total) / speed
	return p, p.longest >= 0
}

// differ returns (longest - shortest) / longest of the times in use.
func (p *proportion) differ() float64 { return 1 - p.seconds(p.shortest)/p.seconds(p.longest) }

// of returns the fraction of the oracle if the shortest step takes a time, in s.
func (p *proportion) of(least float64) float64 {
	return min((least+p.exposed)/(p.seconds(p.longest)+p.exposed), 1)
}

// at returns the time of a rank with other shares, in s.
func (p *proportion) at(rank int, samples float64) float64 {
	return samples / float64(p.shares[rank]) * p.seconds(rank)
}

// within returns the largest share that a rank may have and finishes within a time, in s.
func (p *proportion) within(rank int, seconds float64) int {
	unit := max(p.opts.Unit, 1)
	if p.shares[rank] == 0 {
		return 0
	}
	n := min(float64(p.shares[rank])*seconds/p.seconds(rank), float64(p.limits[rank]))
	return max(int(n)/unit*unit, unit)
}

// whole returns the time of the shortest step with limits and units of shares, in s.
func (p *proportion) whole() float64 {
	const precise = 1e-4
	if p.shortestWhole > 0 {
		return p.shortestWhole
	}
	low, high := p.least, p.seconds(p.longest)
	for high-low > precise*high {
		middle, sum := low+(high-low)/2, 0
		for r := range p.shares {
			sum += p.within(r, middle)
		}
		if sum+p.opts.Total%max(p.opts.Unit, 1) >= p.opts.Total {
			high = middle
		} else {
			low = middle
		}
	}
	for r, n := range p.shares {
		if n > 0 { // each rank gets at least one unit
			high = max(high, min(p.at(r, float64(max(p.opts.Unit, 1))), p.seconds(r)))
		}
	}
	p.shortestWhole = high
	return high
}

// outside returns the distance of a fraction from an interval.
func outside(v float64, f balancer.Fraction) float64 { return max(f.Low-v, v-f.High) }

// disagreement says why the fraction of the oracle, the busy times and the imbalance of a window clearly differ; "" if
// they do not. oracle are the best shares on the curves.
func (c *chooser) disagreement(d *balancer.Decision, oracle []int, curves []divide.Scaled, m *measured) string {
	of := d.OfOracle
	busy, ok := c.inProportion(d.Shares, func(r int) float64 { return d.Ranks[r].Seconds }, m.exposed)
	if !ok || of.Value != of.Value {
		return ""
	}
	fraction := busy.of(busy.least)
	if of.Low-fraction > contradicts || of.High+contradicts < 1 {
		fraction = busy.of(busy.whole())
	}
	off := outside(fraction, of)
	if fraction > of.High && excludesOthers(d.Shares, oracle) { // shares in proportion exclude no others
		off = 0
	}
	if off <= contradicts && d.Imbalance-(1-of.Low) <= unequal {
		return ""
	}
	step, window := m.extremes()
	if off > contradicts+window {
		return fmt.Sprintf("by batch / busy ms, this fraction would be %.0f %%: %s", 100*fraction,
			c.whyNot(d, &busy, oracle, curves, fraction < of.Low))
	}
	own, ok := c.inProportion(d.Shares, func(r int) float64 { return stat.MeanOf(m.own[r]).Or(math.NaN()) }, 0)
	if steady := 1 - (1-d.Imbalance)*stat.Exp(2*step); !ok || steady-(1-of.Low) <= unequal {
		return ""
	}
	ownMeans, busyMeans := own.differ(), busy.differ()
	if max(ownMeans, busyMeans) <= contradicts+2*window {
		return fmt.Sprintf("busy times vary from step to step, and their means differ by %.0f %%", 100*busyMeans)
	}
	rank := own.shortest
	text := fmt.Sprintf("rank %d is busy for %.1f of %.1f ms", rank, 1e3*busy.seconds(rank),
		1e3*busy.seconds(busy.longest))
	if ownMeans-busyMeans > contradicts {
		text += fmt.Sprintf(", without the update for %.1f of %.1f ms", 1e3*own.seconds(rank),
			1e3*own.seconds(own.longest))
	}
	if limit := c.limits[rank]; d.Shares[rank]+max(c.opts.Unit, 1) > limit {
		return fmt.Sprintf("%s, and %d samples are its limit", text, limit)
	}
	return fmt.Sprintf("%s; by batch / busy ms, other shares would save %.1f %% of a step", text,
		100*(1-busy.of(busy.whole())))
}

// excludesOthers reports whether the best shares exclude other ranks than the shares in use.
func excludesOthers(shares, oracle []int) bool {
	for r, n := range shares {
		if (n == 0) != (oracle[r] == 0) {
			return true
		}
	}
	return false
}

// whyNot names the rank whose curve differs most from the times that are in proportion to the busy times of the window.
// less is true if the curves promise less from a change of shares than these times.
func (c *chooser) whyNot(d *balancer.Decision, busy *proportion, oracle []int, curves []divide.Scaled,
	less bool) string {
	fitted, ok := c.inProportion(d.Shares, func(r int) float64 { return d.Ranks[r].Fitted }, busy.exposed)
	if ok && outside(fitted.of(fitted.whole()), d.OfOracle) <= contradicts {
		rank, most := busy.longest, contradicts
		for r, n := range d.Shares {
			if n == 0 {
				continue
			}
			if off := math.Abs(math.Log(busy.seconds(r) / fitted.seconds(r))); off > most {
				rank, most = r, off
			}
		}
		return fmt.Sprintf("rank %d took %.1f ms in this window, and %.1f ms on its curve", rank,
			1e3*busy.seconds(rank), 1e3*fitted.seconds(rank))
	}
	// The rank that is the slowest with the shares that look better: those in proportion, or those of the curves.
	rank, samples, most, least := busy.longest, d.Shares[busy.longest], -1.0, busy.whole()
	for r, n := range oracle {
		if less {
			n = busy.within(r, least)
		}
		if d.Shares[r] == 0 || n == 0 {
			continue
		}
		seconds := busy.at(r, float64(n))
		if less {
			seconds = curves[r].At(float64(n))
		}
		if seconds > most {
			rank, samples, most = r, n, seconds
		}
	}
	return fmt.Sprintf("with a share of %d, rank %d takes %.1f ms on its curve, and %.1f ms in proportion", samples,
		rank, 1e3*curves[rank].At(float64(samples)), 1e3*busy.at(rank, float64(samples)))
}
