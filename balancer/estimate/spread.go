package estimate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// Ranks of one type with one share in use form a class. The levels of its ranks differ by an unknown standard deviation
// tau. A tau below the noise of the levels cannot be measured, so [deviceTypes.shrink] assumes one value.
// The error of this value is common to all ranks of the type: if the devices are equal, all differences of their levels
// are noise. Intervals therefore need the posterior of tau. Levels of two classes also differ by the error of the curve
// between their shares, which is no difference of the devices.
//
// The variances of the filter are not exact either: a rank leaves a share after times that noise made long, so its
// times at the share before and at the next one are not independent. Such an error is common to the ranks of a type,
// too, and changes the levels as tau does. The variances are therefore known up to a factor.

const (
	// leastSpread and mostSpread limit tau, log. Before any measurement, each order of magnitude between them is
	// equally probable. Smaller leastSpread: more weight of equal devices.
	leastSpread = 1e-4
	spreadSteps = 21 // values of tau whose probability is computed
	// spreadRanks is the number of ranks from which the posterior of tau is computed. Larger: intervals of equal
	// devices are narrower, and a decision takes longer.
	spreadRanks = 256
	// Spreads is the number of quantiles of the posterior of tau.
	Spreads = 64
)

// varianceErrors are the equally probable factors on the variances of the filter.
var varianceErrors = [...]float64{1, 1.5, 2.25}

// classify forms the classes of the ranks of a group.
func (t *deviceTypes) classify(group int, levels []Level, ranks, shares []int) {
	first := len(t.classes)
	for _, r := range ranks {
		l, key := &levels[r], [2]int{group, shares[r]}
		if l.Class = t.classOf[key]; l.Class == 0 {
			t.classes = append(t.classes, Class{Type: group + 1})
			l.Class = len(t.classes)
			t.classOf[key] = l.Class
		}
		c, w := &t.classes[l.Class-1], 1/l.variance
		c.ranks, c.mean, c.variance, c.bend = c.ranks+1, c.mean+w*l.away, c.variance+w, c.bend+l.bend
	}
	for i := range t.classes[first:] {
		c := &t.classes[first+i]
		c.mean, c.variance, c.bend = c.mean/c.variance, c.ranks/c.variance, c.bend/c.ranks+windowNoise*windowNoise
		// Shares follow levels, so a class can consist of the ranks with the most extreme noise.
		chosen := math.Sqrt(2 * math.Log(float64(len(ranks))/c.ranks) * c.variance)
		if math.Abs(c.mean) > chosen+sureSigmas*math.Sqrt(c.bend+c.variance/c.ranks) {
			c.bend = math.Inf(1)
		}
	}
}

// spreadsOf returns the quantiles of the posterior of tau from the levels of the ranks of one type. It sets
// Level.Apart.
func (t *deviceTypes) spreadsOf(levels []Level, ranks []int, outlying float64) (quantiles []Spread) {
	var logs [spreadSteps][len(varianceErrors)]float64
	var spreads [spreadSteps]Spread
	n, best := min(len(ranks), spreadRanks), math.Inf(-1)
	chosen := make([]*Level, 0, n)
	for i := range n {
		if l := &levels[ranks[stat.Sample(i, len(ranks))]]; t.classes[l.Class-1].ranks >= 2 {
			chosen = append(chosen, l)
		}
	}
	away := make([]float64, len(chosen))
	for i, l := range chosen {
		away[i] = t.classes[l.Class-1].free(l)
	}
	for k := range spreads {
		spreads[k].Levels = leastSpread * stat.Exp(float64(k)/(spreadSteps-1)*math.Log(mostSpread/leastSpread))
		for j, factor := range varianceErrors {
			product := 1.0 // of a few densities, which saves logarithms
			for i, l := range chosen {
				apart, together := densities(away[i], factor*l.variance+spreads[k].Levels*spreads[k].Levels, outlying)
				if product *= apart + together; i%8 == 7 || i == len(chosen)-1 {
					logs[k][j], product = logs[k][j]+math.Log(product), 1
				}
			}
			best = max(best, logs[k][j])
		}
	}
	sum, parts := 0.0, [spreadSteps]float64{}
	for k := range spreads {
		for j, factor := range varianceErrors {
			chance := stat.Exp(max(logs[k][j]-best, -600))
			parts[k], spreads[k].noise = parts[k]+chance, spreads[k].noise+chance*factor
		}
		spreads[k].noise /= parts[k]
		sum += parts[k]
	}
	mean := Spread{}
	for k, part := range parts {
		mean.Levels, mean.noise = mean.Levels+part/sum*spreads[k].Levels, mean.noise+part/sum*spreads[k].noise
	}
	for _, r := range ranks {
		l := &levels[r]
		class, variance := &t.classes[l.Class-1], mean.noise*l.variance+mean.Levels*mean.Levels
		away := class.free(l)
		if class.ranks < 2 { // it has only the other classes to compare with
			away, variance = l.away, variance+class.bend
		}
		if math.IsInf(variance, 1) {
			l.Apart = 1
			continue
		}
		apart, together := densities(away, variance, outlying)
		l.Apart = apart / (apart + together)
	}
	quantiles = make([]Spread, Spreads)
	k, below := 0, parts[0]
	for q := range quantiles {
		for k < spreadSteps-1 && below < (float64(q)+0.5)/Spreads*sum {
			k++
			below += parts[k]
		}
		quantiles[q] = spreads[k]
	}
	return quantiles
}
