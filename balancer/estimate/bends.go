package estimate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// priorFixed is the assumed fraction of a rank's time that does not depend on its share, while only one share is known.
// lineSigma is the standard deviation of this fraction, and of the slope.
const priorFixed, lineSigma = 0.15, 0.3

// priorRanks is the weight of the prior beliefs in bends and tiles, in ranks. Smaller: a tile that all ranks have is
// found sooner. Larger: tiles of single ranks are found.
const priorRanks = 8.0

// A bend is a standard deviation of the Brownian motion w at e times b0. bends lists the possible ones. prior is the
// log of the probability of each before any measurement, up to a constant. The prior prefers small bends, because
// otherwise the noise of a few shares would select a bend.
var bends = [...]struct{ sigma, prior float64 }{{0.01, 0}, {0.03, -1}, {0.1, -2}, {0.3, -3.5}, {1, -5}}

// belief is the probability of each bend. All ranks have one belief, because one rank gives little evidence.
type belief [len(bends)]float64

// priorBends is the prior belief.
var priorBends = func() (b belief) {
	sum := 0.0
	for i, bend := range bends {
		b[i] = stat.Exp(bend.prior)
		sum += b[i]
	}
	for i := range b {
		b[i] /= sum
	}
	return b
}()

// priorMean is the time of a share before any measurement, as a fraction of the time of the largest measured share.
func priorMean(x float64) float64 { return priorFixed + (1-priorFixed)*x }

// place is a share in the coordinates of the covariance function.
type place struct {
	samples float64
	x       float64 // b / b1
	away    float64 // log b/b0
	mean    float64 // m(x)
}

// linear is the covariance of alpha + beta x at two places. brownian is the covariance of a bend of 1.
func linear(a, b place) float64 {
	return lineSigma * lineSigma * (1 + a.x*b.x)
}

func brownian(a, b place) float64 {
	if a.away*b.away <= 0 { // on different sides of b0
		return 0
	}
	return a.mean * b.mean * min(math.Abs(a.away), math.Abs(b.away))
}

// cholesky overwrites the lower triangle of an n x n matrix with its Cholesky factor. It returns false if the
// factorization fails numerically.
func cholesky(l []float64, n int) bool {
	for i := range n {
		row := l[i*n : i*n+i+1]
		for j := range row {
			sum := row[j] - dot(row[:j], l[j*n:])
			if i != j {
				row[j] = sum / l[j*n+j]
				continue
			}
			if !(sum > 0) {
				return false
			}
			row[i] = math.Sqrt(sum)
		}
	}
	return true
}

// forward solves L y = b and overwrites b with y.
func forward(l, b []float64) []float64 {
	n := len(b)
	for i := range b {
		b[i] = (b[i] - dot(b[:i], l[i*n:])) / l[i*n+i]
	}
	return b
}

// backward solves Lᵀ x = y and overwrites y with x.
func backward(l, y []float64) []float64 {
	n := len(y)
	x := make([]float64, n)
	for i := n - 1; i >= 0; i-- {
		sum := y[i]
		for k := i + 1; k < n; k++ {
			sum -= l[k*n+i] * x[k]
		}
		x[i] = sum / l[i*n+i]
	}
	return x
}

// dot returns the dot product of a and the beginning of b.
func dot(a, b []float64) (sum float64) {
	b = b[:len(a)]
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// pooledBends returns the mean of the beliefs of the ranks and of the prior.
func pooledBends(posteriors []*posterior) belief {
	b, ranks := priorBends, priorRanks
	for i := range b {
		b[i] *= ranks
	}
	for _, e := range posteriors {
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
	return b
}
