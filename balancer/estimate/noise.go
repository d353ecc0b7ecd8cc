package estimate

import "github.com/hetero-train/hetero-train/balancer/internal/stat"

// Noise before any measurement.
const (
	// priorNoise is the standard deviation of the log of a step's time, and of the change that all ranks have in common
	// from window to window.
	priorNoise  = 0.03
	priorWeight = 4.0 // weight of both, in observations
	// memory is the number of windows over which both are averaged, and after which a disturbance counts as the usual
	// state. Larger: more exact, but follows a change of noise later.
	memory      = 12
	windowNoise = 0.002 // standard deviation of the log of a window's mean that more steps do not reduce
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
