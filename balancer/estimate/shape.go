package estimate

import (
	"cmp"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// One decision selects only shares within a limited reach, because a curve says little about shares far from the
// measured ones.
const (
	ReachUp = 4.0 // times the largest measured share
	// The smallest measured share divided by ReachDown is the least share. Smaller: slow ranks keep large shares for
	// longer at the start. Larger: fewer curves that fall are found.
	ReachDown = 12.0
)

// Resolution of a curve. Finer values take longer, and change the shares little.
const (
	// GridRatio is the ratio of shares near each other, and of neighbouring points of a curve in the reach of a
	// decision.
	GridRatio = 1.25
	farRatio  = 2.0 // ratio of neighbouring points beyond it
)

// everyShare is the number of samples up to which a curve with tiles has every share. Larger values take longer.
const everyShare = 4096

// mostParts is the number of hypotheses of tiles that a prediction uses. Larger values take longer, and change the
// shares little.
const mostParts = 4

// leastPlain is the least fraction of a time that remains without its tile.
const leastPlain = 0.05

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

// grid is the part of a curve that depends only on the shares. It is valid while the measured shares and the share in
// use stay the same.
type grid struct {
	b0, b1   float64
	smallest float64 // share of the cells; b1 is the largest one
	cells    []place
	features []float64 // of the cells, by tile
	flat     []float64 // scratch memory of a fit
	filled   []bool    // by tile: at least one cell has the feature
	limit    int       // of the knots
	knots    []place   // shares at which the regression is evaluated; nil before the first curve
}

// fits reports whether the grid belongs to these cells.
func (g *grid) fits(cells []cell, b0, b1 float64) bool {
	return g != nil && g.b0 == b0 && g.b1 == b1 && slices.EqualFunc(g.cells, cells, func(p place, c cell) bool {
		return p.samples == c.samples
	})
}

// gridOf returns the grid of the cells. It returns old if old belongs to them.
func gridOf(cells []cell, b0, b1 float64, old *grid) *grid {
	if old.fits(cells, b0, b1) {
		return old
	}
	n := len(cells)
	g := &grid{b0: b0, b1: b1, smallest: b1, cells: make([]place, n), features: make([]float64, n*len(tiles)),
		filled: make([]bool, len(tiles)),
		flat:   make([]float64, 2*n*n+3*n+len(tiles))}
	for i, c := range cells {
		g.cells[i] = g.place(c.samples)
		g.smallest = min(g.smallest, c.samples)
	}
	for h := range tiles {
		for i, c := range cells {
			g.features[h*n+i] = tiles[h].feature(c.samples)
			g.filled[h] = g.filled[h] || g.features[h*n+i] > 0
		}
	}
	return g
}

// ownGrid returns the grid of a curve, or nil if there is no curve.
func (f *shape) ownGrid() *grid {
	if f == nil {
		return nil
	}
	return f.grid
}

func (g *grid) place(samples float64) place {
	x := samples / g.b1
	return place{samples: samples, x: x, away: math.Log(samples / g.b0), mean: priorMean(x)}
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

// fitShape returns the curve through the cells around the share b0. If the measurements contradict each other so much
// that the fit fails numerically, it uses only the nearest share. It returns nil if that fit fails, too. old is the grid
// of the rank's last curve, or nil.
func fitShape(cells []cell, cov [][]float64, before *belief, chances tileBelief, b0 float64, old *grid) *shape {
	if f := newShape(cells, cov, before, chances, b0, old); f != nil {
		return f
	}
	nearest := 0
	for i, c := range cells {
		if math.Abs(math.Log(c.samples/b0)) < math.Abs(math.Log(cells[nearest].samples/b0)) {
			nearest = i
		}
	}
	return newShape(cells[nearest:nearest+1], [][]float64{{cov[nearest][nearest]}}, before, chances, b0, nil)
}

// newShape returns the curve around b0, or nil if the fit fails numerically.
func newShape(cells []cell, cov [][]float64, before *belief, chances tileBelief, b0 float64, old *grid) *shape {
	largest := slices.MaxFunc(cells, func(a, b cell) int { return cmp.Compare(a.samples, b.samples) })
	n := len(cells)
	f := &shape{grid: gridOf(cells, b0, largest.samples, old), scale: stat.Exp(largest.log), known: slices.Clone(cells)}
	for _, row := range cov {
		f.cov = append(f.cov, slices.Clone(row))
	}
	f.straight, f.bent, f.residual, f.times = f.flat[:n*n], f.flat[n*n:2*n*n], f.flat[2*n*n:2*n*n+n],
		f.flat[2*n*n+n:2*n*n+2*n]
	for i, c := range cells {
		f.times[i] = stat.Exp(c.log) / f.scale
		f.residual[i] = f.times[i] - f.cells[i].mean
		for j, to := range f.cells[:i+1] {
			f.straight[i*n+j] = linear(f.cells[i], to) + f.times[i]*f.times[j]*cov[i][j]
			f.bent[i*n+j] = brownian(f.cells[i], to)
		}
		f.straight[i*n+i] += 1e-9
	}
	if f.expected = f.weigh(before, chances); f.expected == nil {
		return nil
	}
	f.keep()
	if len(f.parts) == 0 {
		return nil
	}
	return f
}

// keep selects the hypotheses that predictions use. The misfit reduces the probability of some hypotheses. keep
// therefore also considers less probable hypotheses, as long as the next one can be more probable than all considered
// ones together.
func (f *shape) keep() {
	order := make([]int, len(tiles))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(f.chances[b], f.chances[a]) })
	sum := 0.0
	for i, h := range order {
		if (i >= mostParts || f.chances[h] < leastChance) && f.chances[h] <= sum {
			break
		}
		if p := f.regress(h, f.expected[h], 0); p != nil {
			p.valley = p.valleyOf(f.known, f.cov)
			p.chance *= stat.Exp(-min(f.misfit(p), 600))
			f.parts = append(f.parts, *p)
			sum += p.chance
		}
	}
	slices.SortStableFunc(f.parts, func(a, b part) int { return cmp.Compare(b.chance, a.chance) })
	f.parts = f.parts[:min(len(f.parts), mostParts)]
	f.parts = slices.DeleteFunc(f.parts, func(p part) bool { return p.chance < leastChance*sum })
	sum = 0
	for _, p := range f.parts {
		sum += p.chance
	}
	for i := range f.parts {
		f.parts[i].chance /= sum
	}
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
