package estimate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// openingNoise is the noise that the first windows of all ranks show together.
type openingNoise struct {
	squares stat.Mean // square deviation of the log of a step's time from the mean of its window
}

// pool sets the noise of all ranks to that in the first windows of all ranks together, because few steps of one rank
// say little about its noise. It uses the median over the ranks, so that a few disturbed ranks count little. It also
// corrects the variance of the measured times. Otherwise a rank that underestimated its noise in the first steps would
// trust these steps for many windows.
func (o *openingNoise) pool(ranks []*posterior, window [][]float64, types *deviceTypes) {
	variances, roots := make([]float64, 0, len(window)), make([]float64, 0, len(window))
	var logs []float64
	n := 0 // degrees of freedom of all variances
	for _, seconds := range window {
		if free := len(seconds) - 1; free > 0 {
			squares := 0.0
			logs = appendLogs(logs[:0], seconds)
			center := stat.MeanOf(logs).Or(0)
			for _, l := range logs {
				squares += stat.Square(l - center)
			}
			variances, roots = append(variances, squares/float64(free)), append(roots, 1-2/(9*float64(free)))
			n += free
		}
	}
	if n == 0 {
		types.assumeNoise(ranks, window)
		return
	}
	// The median of a variance is smaller than its mean, by the third power of root (Wilson and Hilferty). The median
	// of two values is their mean.
	for i, root := range roots {
		if len(variances) > 2 {
			variances[i] /= root * root * root
		}
	}
	o.squares.Sum, o.squares.N = o.squares.Sum+float64(n)*stat.Median(variances), o.squares.N+n
	noise := (priorWeight*stat.Square(priorNoise) + o.squares.Sum) / (priorWeight + float64(o.squares.N))
	for _, e := range ranks {
		for i, c := range e.cells {
			if c.steps > 0 {
				e.cov[i][i] += (noise - e.noise) / float64(c.steps)
			}
		}
		e.noise, e.own = noise, noise
	}
}

// poolNoise learns the noise of each large type from the noise of its ranks: the variances that the ranks show differ
// by chance and in truth.
func (t *deviceTypes) poolNoise(ranks []*posterior) {
	for g, p := range t.peers {
		if p == nil {
			continue
		}
		n := min(len(t.groups[g]), pooledRanks)
		logs, chance := make([]float64, 0, n), stat.Mean{}
		for i := range n {
			if e := ranks[t.groups[g][stat.Sample(i, len(t.groups[g]))]]; e.known {
				logs = append(logs, math.Log(max(e.own, leastVariance)))
				chance.Add(e.noiseError())
			}
		}
		if len(logs) == 0 {
			continue
		}
		middle, variance := robustVariance(logs)
		p.spread = max(variance-chance.Or(0), 0)
		p.noise = middle + chance.Or(0)/3 // the median of a variance is smaller than its mean
	}
}

// assumeNoise sets the noise of the ranks of each large type from the first step. One step does not distinguish noise
// from different levels, and equal devices are more probable. The next window distinguishes the two.
func (t *deviceTypes) assumeNoise(ranks []*posterior, window [][]float64) {
	for g, p := range t.peers {
		var logs []float64
		for _, r := range t.groups[g] {
			if p != nil && len(window[r]) == 1 {
				logs = append(logs, math.Log(window[r][0]))
			}
		}
		if len(logs) < 2 {
			continue
		}
		_, variance := robustVariance(logs)
		noise := max(variance, priorNoise*priorNoise)
		for _, r := range t.groups[g] {
			ranks[r].noise, ranks[r].own = noise, noise
		}
	}
}
