package estimate

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// shape is the curve through a rank's cells: a Gaussian-process regression under several hypotheses about tiles
// ([tile]), each with its probability.
//
//	t(b) / t(b1) = alpha + beta x + m(x) w(log b/b0) + t(b) / t(b1) feature(b) weight + noise,   x = b / b1
//
// alpha and beta are normal around a mostly proportional line m; w is Brownian motion from b0, the share in use; b1 is
// the largest cell. A hypothesis adds one normal weight, so its evidence is a rank-one update of the evidence of the
// smooth curve.
type shape struct {
	*grid
	scale    float64 // t(b1), s
	known    []cell
	cov      [][]float64 // of their logs
	times    []float64   // of the cells, as fractions of the scale
	residual []float64   // times minus m
	straight []float64   // covariance of the cells without bends, n x n
	bent     []float64   // covariance that a bend of 1 adds
	parts    []part      // the most probable hypotheses; their probabilities sum to 1
	chances  tileBelief
	expected []float64 // bend, by tile
	bends    belief
}

// ownGrid returns the grid of a curve, or nil if there is no curve.
func (f *shape) ownGrid() *grid {
	if f == nil {
		return nil
	}
	return f.grid
}

// part is the regression under one hypothesis. Times are fractions of the scale.
type part struct {
	chance  float64
	tile    int
	bend    float64   // expected
	half    []float64 // Cholesky factor of the cells' covariance
	weights []float64 // of the kernel at each cell
	solved  []float64 // half^-1 times the cells' features
	weight  float64   // of the tile, expected
	spread  float64   // its variance
	valley  float64   // share up to which the curve falls; 0: the curve rises everywhere
}

// leastPlain is the least fraction of a time that remains without its tile.
const leastPlain = 0.05

// plain returns the time of a share without its tile, as a fraction of the whole time.
func (p *part) plain(samples float64) float64 {
	return max(1-p.weight*tiles[p.tile].feature(samples), leastPlain)
}

// base returns the time of a share without its tile under a hypothesis, as a fraction of the scale. It is at least a
// tenth of a proportional time, because the regression can extrapolate below 0. It writes the covariances of the share
// with the cells to k.
func (f *shape) base(p *part, at place, k []float64) float64 {
	for i, c := range f.cells {
		k[i] = linear(at, c) + p.bend*p.bend*brownian(at, c)
	}
	return max(at.mean+dot(k, p.weights), 0.1*at.x)
}

// free returns the variance of a share's time without its tile. k contains the covariances of the share with the cells;
// free overwrites it.
func (f *shape) free(p *part, at place, k []float64) float64 {
	forward(p.half, k)
	return max(linear(at, at)+p.bend*p.bend*brownian(at, at)-dot(k, k), 0)
}

// at returns the mean (s) and the variance (s²) of a share's time.
func (f *shape) at(samples float64) (mean, variance float64) {
	at, k := f.place(samples), make([]float64, len(f.cells))
	for i := range f.parts {
		p := &f.parts[i]
		t := f.base(p, at, k) / p.plain(samples)
		v := f.free(p, at, k)
		v += stat.Square(tiles[p.tile].feature(samples)*t-dot(k, p.solved)) * p.spread
		mean += p.chance * t
		variance += p.chance * (v + t*t)
	}
	return mean * f.scale, max(variance-mean*mean, 0) * f.scale * f.scale
}

// ratioVariance returns the variance of the log of the ratio of the times of two shares.
func (f *shape) ratioVariance(first, second float64) float64 {
	a, b := f.place(first), f.place(second)
	ka, kb := make([]float64, len(f.cells)), make([]float64, len(f.cells))
	var mean, square float64
	for i := range f.parts {
		p := &f.parts[i]
		ta, tb := f.base(p, a, ka)/p.plain(first), f.base(p, b, kb)/p.plain(second)
		va, vb := f.free(p, a, ka), f.free(p, b, kb)
		both := linear(a, b) + p.bend*p.bend*brownian(a, b) - dot(ka, kb)
		tile := &tiles[p.tile]
		ga, gb := tile.feature(first)*ta-dot(ka, p.solved), tile.feature(second)*tb-dot(kb, p.solved)
		v := (va+ga*ga*p.spread)/(ta*ta) + (vb+gb*gb*p.spread)/(tb*tb) - 2*(both+ga*gb*p.spread)/(ta*tb)
		log := math.Log(ta / tb)
		mean += p.chance * log
		square += p.chance * (max(v, 0) + log*log)
	}
	return max(square-mean*mean, 0)
}

// sigma returns the standard deviation of a share's time, in s.
func (f *shape) sigma(samples float64) float64 {
	_, v := f.at(samples)
	return math.Sqrt(v)
}

// log returns the log of a share's time, and its variance.
func (f *shape) log(samples float64) (value, variance float64) {
	m, v := f.at(samples)
	return math.Log(m), v / (m * m)
}

// jagged reports whether a hypothesis with tiles is in use.
func (f *shape) jagged() bool { return f.parts[0].tile != 0 || len(f.parts) > 1 }

// distinguishesTiles reports whether a curve has the three measured shares that distinguish tiles.
func (f *shape) distinguishesTiles() bool { return f != nil && len(f.cells) >= 3 }

// misses reports whether no share was measured that fills an aligned tile.
func (f *shape) misses(tile int) bool {
	return f != nil && tiles[tile].period > 0 && !tiles[tile].rounds && !f.filled[tile]
}

// tests reports whether a share is the first one that fills an aligned tile, or the first one that does not.
func (f *shape) tests(samples float64) bool {
	if f == nil {
		return false
	}
	for h := range tiles {
		t := &tiles[h]
		alike := func(c place) bool { return t.feature(c.samples) == t.feature(samples) }
		if t.period > 0 && !t.rounds && f.chances[h] >= leastProbed && !slices.ContainsFunc(f.cells, alike) {
			return true
		}
	}
	return false
}
