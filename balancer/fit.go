package balancer

import (
	"cmp"
	"math"
	"slices"
)

// fitted is a rank's curve around one share b0, from its cells, the largest of which is b1:
//
//	t(b) / t(b1) = alpha + beta x + m(x) w(log b/b0) + noise,   x = b / b1
//
// alpha and beta are normal around a mostly proportional line m, w is Brownian motion that starts at b0: Gaussian-process regression with
// a linear and a Brownian kernel (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, ch. 2). So the curve is a
// line where the data are noisy or lie on one, and bends at the cells where they say so: a kernel boundary, a cache, an accumulation
// step. How much it may bend is what is to be expected after the data, and after what the other ranks have shown.
type fitted struct {
	b0, b1  float64 // samples
	scale   float64 // t(b1), s
	cells   []place
	weights []float64 // of the kernel at each cell
	inverse []float64 // Cholesky factor of the cells' covariance
	bend    float64
	chances belief
}

// The prior of a rank of which one share is known: about a seventh of its time does not depend on the share, but that is known badly.
const (
	priorFixed      = 0.15
	priorFixedSigma = 0.3
	priorSlope      = 1 - priorFixed
	priorSlopeSigma = 0.3
)

// bends are the standard deviations of w at e times b0, with the log of how likely each is beforehand: what is measured must ask for a bend, or the noise of a few
// cells would choose one, and what they know of each other were lost.
var bends = [...]struct{ sigma, prior float64 }{{0.01, 0}, {0.03, -1}, {0.1, -2}, {0.3, -3.5}, {1, -5}}

// belief is how likely each bend is, 1 together, as all ranks have shown: kernels that work in tiles do so on every rank, and one rank's noise tells little.
type belief [len(bends)]float64

// beforehand is the belief of a cluster that was not measured.
var beforehand = func() (b belief) {
	var logs [len(bends)]float64
	for i, bend := range bends {
		b[i], logs[i] = 1, bend.prior
	}
	return b.after(logs)
}()

const believers = 32 // ranks that the bends' priors count as

// learn takes what the ranks' fits say instead of what they said before.
func (b *belief) learn(fits []*fitted) {
	*b = beforehand
	ranks := float64(believers)
	for i := range b {
		b[i] *= ranks
	}
	for _, f := range fits {
		if f == nil || len(f.cells) < 3 { // fewer tell no bends apart
			continue
		}
		ranks++
		for i, chance := range f.chances {
			b[i] += chance
		}
	}
	for i := range b {
		b[i] /= ranks
	}
}

// after is the belief after data of which these are the log likelihoods under each bend, up to a constant.
func (b belief) after(logs [len(bends)]float64) belief {
	highest, sum := slices.Max(logs[:]), 0.0
	for i, l := range logs {
		b[i] *= exp(l - highest)
		sum += b[i]
	}
	for i := range b {
		b[i] /= sum
	}
	return b
}

// mean is the expected bend.
func (b belief) mean() (bend float64) {
	for i, chance := range b {
		bend += chance * bends[i].sigma
	}
	return bend
}

func priorMean(x float64) float64 { return priorFixed + priorSlope*x }

// place is a share as the kernel sees it.
type place struct {
	samples float64
	x       float64 // b / b1
	away    float64 // log b/b0
	mean    float64 // m(x)
	slower  bool    // of a cell
}

func (f *fitted) place(samples float64) place {
	x := samples / f.b1
	return place{samples: samples, x: x, away: math.Log(samples / f.b0), mean: priorMean(x)}
}

func (f *fitted) kernel(a, b place) float64 {
	return linear(a, b) + f.bend*f.bend*brownian(a, b)
}

// linear is the covariance of alpha + beta x, brownian that of a bend of 1.
func linear(a, b place) float64 {
	return priorFixedSigma*priorFixedSigma + priorSlopeSigma*priorSlopeSigma*a.x*b.x
}

func brownian(a, b place) float64 {
	if a.away*b.away <= 0 { // on different sides of b0
		return 0
	}
	return a.mean * b.mean * min(math.Abs(a.away), math.Abs(b.away))
}

// fit is the curve around the share b0. The estimate must have a cell.
func (e *estimate) fit(b0 float64) *fitted {
	if f := through(e.cells, e.cov, e.belief, b0); f != nil {
		return f
	}
	nearest := 0
	for i, c := range e.cells {
		if math.Abs(math.Log(c.samples/b0)) < math.Abs(math.Log(e.cells[nearest].samples/b0)) {
			nearest = i
		}
	}
	return through(e.cells[nearest:nearest+1], [][]float64{{e.cov[nearest][nearest]}}, e.belief, b0) // the cells contradict each other beyond what floats can hold
}

// through is the curve through cells that bends as much as is to be expected after what they say; nil if floats hold none, which never happens to a single cell.
// The likeliest bend would jump from one decision to the next, and be sure of lines where a few cells happen to lie on one.
func through(cells []cell, cov [][]float64, before *belief, b0 float64) *fitted {
	largest := slices.MaxFunc(cells, func(a, b cell) int { return cmp.Compare(a.samples, b.samples) })
	n := len(cells)
	f := &fitted{b0: b0, b1: largest.samples, scale: exp(largest.log), cells: make([]place, n)}
	flat := make([]float64, 2*n*n+2*n)
	straight, bent, residual, times := flat[:n*n], flat[n*n:2*n*n], flat[2*n*n:2*n*n+n], flat[2*n*n+n:]
	for i, c := range cells {
		at := f.place(c.samples)
		at.slower = c.slower
		f.cells[i] = at
		times[i] = exp(c.log) / f.scale
		residual[i] = times[i] - at.mean
		for j, to := range f.cells[:i+1] {
			straight[i*n+j] = linear(at, to) + times[i]*times[j]*cov[i][j]
			bent[i*n+j] = brownian(at, to)
		}
		straight[i*n+i] += 1e-9
	}
	var logs [len(bends)]float64
	for i, bend := range bends {
		f.bend = bend.sigma
		var ok bool
		if logs[i], ok = f.solve(residual, straight, bent); !ok {
			logs[i] = math.Inf(-1)
		}
	}
	f.chances = before.after(logs)
	f.bend = f.chances.mean()
	if _, ok := f.solve(residual, straight, bent); !ok {
		return nil
	}
	return f
}

// solve factors the covariance of the cells, straight + bend^2 bent, and returns the log likelihood of what they say.
func (f *fitted) solve(residual, straight, bent []float64) (float64, bool) {
	n := len(f.cells)
	l := make([]float64, n*n) // lower Cholesky factor, by rows
	determinant := 1.0        // of l
	for i := range n {
		row := l[i*n : i*n+i+1]
		for j := range row {
			sum := straight[i*n+j] + f.bend*f.bend*bent[i*n+j] - dot(row[:j], l[j*n:])
			if i != j {
				row[j] = sum / l[j*n+j]
				continue
			}
			if !(sum > 0) {
				return 0, false
			}
			row[i] = math.Sqrt(sum)
			determinant *= row[i]
		}
	}
	f.inverse = l
	half := forward(l, slices.Clone(residual))
	f.weights = backward(l, half)
	return -dot(half, half)/2 - math.Log(determinant), true
}

// forward solves L y = b, in the place of b.
func forward(l, b []float64) []float64 {
	n := len(b)
	for i := range b {
		b[i] = (b[i] - dot(b[:i], l[i*n:])) / l[i*n+i]
	}
	return b
}

// backward solves Lᵀ x = y.
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

// dot is of a and the beginning of b.
func dot(a, b []float64) (sum float64) {
	b = b[:len(a)]
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// mean is the expected time of a share, s.
func (f *fitted) mean(samples float64) float64 {
	return f.near(f.place(samples), make([]float64, len(f.cells)))
}

// sigma is the standard deviation of mean, s.
func (f *fitted) sigma(samples float64) float64 {
	at, k := f.place(samples), make([]float64, len(f.cells))
	f.near(at, k)
	return f.spread(at, k)
}

// log is the logarithm of mean, and its variance.
func (f *fitted) log(samples float64) (value, variance float64) {
	at, k := f.place(samples), make([]float64, len(f.cells))
	mean := f.near(at, k)
	return math.Log(mean), square(f.spread(at, k) / mean)
}

// near is the mean at a place, and its covariances with the cells, in k. Where the regression would have few samples take nearly nothing, or less, they take
// a tenth of what they would in proportion.
func (f *fitted) near(at place, k []float64) float64 {
	mean := at.mean
	for i, c := range f.cells {
		k[i] = f.kernel(at, c)
		mean += f.weights[i] * k[i]
	}
	return f.scale * max(mean, 0.1*at.x)
}

// spread is the standard deviation at a place with these covariances, which are lost.
func (f *fitted) spread(at place, k []float64) float64 {
	half := forward(f.inverse, k)
	return f.scale * math.Sqrt(max(f.kernel(at, at)-dot(half, half), 0))
}

// curves are the mean, and the mean plus so many standard deviations, as curves from 1 to limit samples, or to b0 where that is more. They rise, or fall to a
// valley first where the rank is known to be slower with fewer samples. Their knots are the cells, b0, the ends and points between. With 0 standard deviations
// they are one.
func (f *fitted) curves(limit int, sigmas float64) (mean, off Curve) {
	const widest = 1.25 // ratio of neighbouring knots
	most := max(float64(limit), f.b0, 1)
	knots := append(make([]float64, 0, len(f.cells)+3), 1, f.b0, most)
	for _, c := range f.cells {
		knots = append(knots, c.samples)
	}
	slices.Sort(knots)
	knots = slices.Compact(knots)
	mean = make(Curve, 0, 3*len(knots))
	if sigmas != 0 {
		off = make(Curve, 0, 3*len(knots))
	}
	k := make([]float64, len(f.cells))
	last, high, falls := 0.0, 0.0, false
	for _, samples := range knots {
		if samples < 1 || samples > most {
			continue
		}
		pieces := 1.0
		if last > 0 {
			pieces = max(math.Ceil(min(math.Log(samples/last)/math.Log(widest), samples-last)), 1)
		}
		for i := 1.0; i <= pieces; i++ {
			at := samples
			if i < pieces {
				at = last * exp(i/pieces*math.Log(samples/last))
			}
			place := f.place(at)
			seconds := f.near(place, k)
			high = max(high, seconds)
			falls = falls || seconds < high*(1-leastFall)
			mean = append(mean, Point{at, seconds})
			if sigmas != 0 {
				off = append(off, Point{at, max(seconds+sigmas*f.spread(place, k), 0)})
			}
		}
		last = samples
	}
	valley := 0
	if falls {
		share := f.fastest(most)
		valley = max(slices.IndexFunc(mean, func(p Point) bool { return p.Samples == share }), 0)
	}
	mean.settle(valley)
	if sigmas == 0 {
		return mean, mean
	}
	off.settle(valley)
	return mean, off
}

// A rank is known to be slower with fewer samples if it was measured so by more than this part, by so many standard deviations, and whatever its speed was ([cell]).
const (
	leastFall  = 0.03
	fallSigmas = 3.0
)

// fastest is the share of at most so many samples with which the rank is fastest, if it is known to be slower with fewer, or 0.
func (f *fitted) fastest(most float64) float64 {
	if !slices.ContainsFunc(f.cells, func(c place) bool { return c.slower }) { // most often; what follows takes as long as the fit itself
		return 0
	}
	n := len(f.cells)
	means, halves := make([]float64, n), make([][]float64, n)
	best := -1
	for i, c := range f.cells {
		halves[i] = make([]float64, n)
		means[i] = f.near(c, halves[i])
		forward(f.inverse, halves[i])
		if c.samples <= most && (best < 0 || means[i] < means[best]) {
			best = i
		}
	}
	if best < 0 {
		return 0
	}
	cov := func(i, j int) float64 { return f.kernel(f.cells[i], f.cells[j]) - dot(halves[i], halves[j]) }
	for i, c := range f.cells {
		if !c.slower || c.samples >= f.cells[best].samples {
			continue
		}
		variance := cov(i, i) + cov(best, best) - 2*cov(i, best)
		if fall := means[i] - means[best]; fall > leastFall*means[i] && square(fall/f.scale) > square(fallSigmas)*variance {
			return f.cells[best].samples
		}
	}
	return 0
}
