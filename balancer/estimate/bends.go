package estimate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// priorFixed is the assumed fraction of a rank's time that does not depend on its share, while only one share is known.
// lineSigma is the standard deviation of this fraction, and of the slope.
const priorFixed, lineSigma = 0.15, 0.3

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
