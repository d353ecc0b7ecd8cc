package estimate

import (
	"cmp"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// Reach of one decision, because a curve says little about shares far from the measured ones.
const (
	ReachUp = 4.0 // times the largest measured share
	// ReachDown: the smallest measured share divided by this is the least share. Smaller: slow ranks keep large shares for
	// longer at the start. Larger: finds fewer falls.
	ReachDown = 12.0
)

// Resolution of a curve. Finer values take longer, and change the shares little.
const (
	// GridRatio is the ratio of shares near each other, and of neighbouring points of a curve in the reach of a decision.
	GridRatio  = 1.25
	farRatio   = 2.0  // ratio of neighbouring points beyond it
	mostParts  = 4    // hypotheses of tiles that a prediction uses
	everyShare = 4096 // samples up to which a curve with tiles has every share
	leastPlain = 0.05 // least fraction of a time that remains without its tile
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

// grid is the part of a curve that depends only on the shares. It is valid while the measured shares and the share in
// use stay the same.
type grid struct {
	b0, b1   float64
	cells    []place
	features []float64 // of the cells, by tile
	flat     []float64 // scratch memory of a fit
	filled   []bool    // by tile: at least one cell has the feature
	limit    int       // of the knots
	knots    []place   // shares at which the regression is evaluated; nil before the first curve
}

// fits reports whether the grid belongs to these cells.
func (g *grid) fits(cells []cell, b0, b1 float64) bool {
	return g != nil && g.b0 == b0 && g.b1 == b1 && slices.EqualFunc(g.cells, cells, func(p place, c cell) bool { return p.samples == c.samples })
}

// gridOf returns the grid of the cells. It returns old if old belongs to them.
func gridOf(cells []cell, b0, b1 float64, old *grid) *grid {
	if old.fits(cells, b0, b1) {
		return old
	}
	n := len(cells)
	g := &grid{b0: b0, b1: b1, cells: make([]place, n), features: make([]float64, n*len(tiles)), filled: make([]bool, len(tiles)),
		flat: make([]float64, 2*n*n+3*n+len(tiles))}
	for i, c := range cells {
		g.cells[i] = g.place(c.samples)
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

// newShape returns the curve around b0, or nil if the fit fails numerically. old is the grid of the rank's last curve,
// or nil.
func newShape(cells []cell, cov [][]float64, before *belief, chances tileBelief, b0 float64, old *grid) *shape {
	largest := slices.MaxFunc(cells, func(a, b cell) int { return cmp.Compare(a.samples, b.samples) })
	n := len(cells)
	f := &shape{grid: gridOf(cells, b0, largest.samples, old), scale: stat.Exp(largest.log), known: slices.Clone(cells)}
	for _, row := range cov {
		f.cov = append(f.cov, slices.Clone(row))
	}
	f.straight, f.bent, f.residual, f.times = f.flat[:n*n], f.flat[n*n:2*n*n], f.flat[2*n*n:2*n*n+n], f.flat[2*n*n+n:2*n*n+2*n]
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

// keep selects the hypotheses that predictions use. The misfit reduces the probability of some. keep therefore also
// considers less probable hypotheses, as long as one of them can be more probable than all that it has considered.
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

// featuresOf writes the features of the cells under a hypothesis, times their times, to z.
func (f *shape) featuresOf(h int, z []float64) {
	for i, t := range f.times {
		z[i] = f.features[h*len(z)+i] * t
	}
}

// weigh computes the posterior probability of each tile and of each bend, and the expected bend under each tile. It
// returns nil if the evidence cannot be computed in floating point.
func (f *shape) weigh(before *belief, chances tileBelief) (expected []float64) {
	logs := make([]float64, len(tiles)*len(bends))
	best := math.Inf(-1)
	n := len(f.cells)
	half, tileLogs := f.flat[2*n*n+2*n:2*n*n+3*n], f.flat[2*n*n+3*n:]
	for h, chance := range chances {
		tileLogs[h] = math.Log(chance)
	}
	for k, bend := range bends {
		bendLog := math.Log(before[k])
		l, determinant, ok := f.factor(bend.sigma)
		base := slices.Clone(f.residual)
		if ok {
			forward(l, base)
		}
		for h := range tiles {
			log := math.Inf(-1)
			if ok {
				log = bendLog + tileLogs[h] - determinant - dot(base, base)/2
				if f.filled[h] {
					f.featuresOf(h, half)
					log += gainOf(&tiles[h], forward(l, half), base)
				}
			}
			logs[k*len(tiles)+h] = log
			best = max(best, log)
		}
	}
	if math.IsInf(best, -1) || math.IsNaN(best) {
		return nil
	}
	f.chances, f.bends, expected = make(tileBelief, len(tiles)), belief{}, make([]float64, len(tiles))
	sum := 0.0
	for i := range logs {
		if logs[i] -= best; logs[i] < -40 { // negligible relative to 1
			logs[i] = 0
		} else {
			logs[i] = stat.Exp(logs[i])
		}
		sum += logs[i]
	}
	for i, l := range logs {
		h, k := i%len(tiles), i/len(tiles)
		f.chances[h] += l / sum
		f.bends[k] += l / sum
		expected[h] += l / sum * bends[k].sigma
	}
	for h, chance := range f.chances {
		if expected[h] /= chance; chance == 0 {
			expected[h] = bends[0].sigma
		}
	}
	return expected
}

// gainOf returns the log of the evidence of a tile relative to the smooth curve. half has the features of the cells and
// base their residuals, both divided by the Cholesky factor. The weight has a normal distribution that is truncated at
// its bound.
func gainOf(t *tile, half, base []float64) float64 {
	mean, sigma, most := t.weight()
	v := sigma * sigma
	q, s := dot(half, half), dot(half, base)
	s -= mean * q           // of the residuals minus the mean weight
	spread := v / (1 + v*q) // posterior variance of the weight
	before := logBelowBound[0]
	if t.rounds {
		before = logBelowBound[1]
	}
	gain := mean*(dot(half, base)-mean*q/2) + spread*s*s/2 - math.Log1p(v*q)/2
	return gain + logBelow(most, mean+spread*s, math.Sqrt(spread)) - before
}

// regress returns the regression under one hypothesis and a bend, or nil if it fails numerically. The weight of the
// tile is sigmas standard deviations above the expected weight.
func (f *shape) regress(h int, bend, sigmas float64) *part {
	l, _, ok := f.factor(bend)
	if !ok {
		return nil
	}
	p := &part{chance: f.chances[h], tile: h, bend: bend, half: l}
	base := forward(l, slices.Clone(f.residual))
	p.solved = make([]float64, len(f.cells))
	f.featuresOf(h, p.solved)
	forward(l, p.solved)
	if tiles[h].period > 0 {
		mean, sigma, most := tiles[h].weight()
		p.spread = 1 / (1/stat.Square(sigma) + dot(p.solved, p.solved))
		p.weight = min(p.spread*(mean/stat.Square(sigma)+dot(p.solved, base))+sigmas*math.Sqrt(p.spread), most)
		for i := range base {
			base[i] -= p.weight * p.solved[i]
		}
	}
	p.weights = backward(l, base)
	return p
}

// misfit returns by how much the measured times reduce the log probability of a curve that rises on both sides of its
// valley: half the sum of the squared deviations, in standard deviations. Hypotheses under which the curve would rise
// and fall again become improbable.
func (f *shape) misfit(p *part) (log float64) {
	n := len(f.cells)
	order, k := make([]int, n), make([]float64, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(f.cells[a].samples, f.cells[b].samples) })
	bases, lowest := make(divide.Curve, n), 0
	for j, i := range order {
		bases[j] = divide.Point{Samples: f.cells[i].samples, Seconds: f.base(p, f.cells[i], k)}
		if f.cells[i].samples == p.valley {
			lowest = j
		}
	}
	settle(bases, lowest, func(j int) float64 { return f.cov[order[j]][order[j]] * stat.Square(f.times[order[j]]) })
	for j, i := range order {
		off := math.Log(bases[j].Seconds / p.plain(f.cells[i].samples) / f.times[i])
		log += off * off / (2 * f.cov[i][i])
	}
	return log
}

// valleyOf returns the fastest share of the rank, without the effect of tiles, if a smaller share certainly takes
// longer; otherwise 0.
func (p *part) valleyOf(cells []cell, cov [][]float64) float64 {
	base := func(c cell) float64 { return c.log + math.Log(p.plain(c.samples)) }
	best := 0
	for i, c := range cells {
		if base(c) < base(cells[best]) {
			best = i
		}
	}
	for i, c := range cells {
		for j, larger := range cells {
			if c.samples >= cells[best].samples || larger.samples <= c.samples {
				continue
			}
			fall := base(c) - base(larger) - leastShift
			if fall > 0 && stat.Square(fall) > stat.Square(likelySigmas)*(cov[i][i]+cov[j][j]-2*cov[i][j]) {
				return cells[best].samples
			}
		}
	}
	return 0
}

// plain returns the time of a share without its tile, as a fraction of the whole time.
func (p *part) plain(samples float64) float64 {
	return max(1-p.weight*tiles[p.tile].feature(samples), leastPlain)
}

// factor returns the lower Cholesky factor of the cells' covariance with a bend, and the log of its determinant. ok is
// false if the factorization fails numerically.
func (f *shape) factor(bend float64) (l []float64, determinant float64, ok bool) {
	n := len(f.cells)
	l = make([]float64, n*n)
	for i := range n {
		row := l[i*n : i*n+i+1]
		for j := range row {
			sum := f.straight[i*n+j] + bend*bend*f.bent[i*n+j] - dot(row[:j], l[j*n:])
			if i != j {
				row[j] = sum / l[j*n+j]
				continue
			}
			if !(sum > 0) {
				return nil, 0, false
			}
			row[i] = math.Sqrt(sum)
			determinant += math.Log(row[i])
		}
	}
	return l, determinant, true
}

// base returns the time of a share without its tile under a hypothesis, as a fraction of the scale. It is at least a tenth
// of a proportional time, because the regression can extrapolate below 0. It writes the covariances of the share with the
// cells to k.
func (f *shape) base(p *part, at place, k []float64) float64 {
	for i, c := range f.cells {
		k[i] = linear(at, c) + p.bend*p.bend*brownian(at, c)
	}
	return max(at.mean+dot(k, p.weights), 0.1*at.x)
}

// free returns the variance of a share's time without its tile. k has the covariances of the share with the cells; free
// overwrites it.
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

// between returns a curve up to limit samples that has the times of given points, and between the points the form of f.
// Only with tiles does the form differ from lines between the points.
func (f *shape) between(points divide.Curve, limit int) divide.Curve {
	if f == nil || !f.jagged() {
		return points
	}
	curve, _ := f.curves(limit, 0)
	ratio := make(divide.Curve, 0, len(points)+1)
	for _, p := range points {
		ratio = append(ratio, divide.Point{Samples: p.Samples, Seconds: p.Seconds / curve.At(p.Samples)})
	}
	end := ratio[len(ratio)-1]
	ratio = append(ratio, divide.Point{Samples: end.Samples + 1, Seconds: end.Seconds}) // flat from here on
	for i, p := range curve {
		curve[i].Seconds = p.Seconds * ratio.At(p.Samples)
	}
	return curve
}

// reach returns the smallest and the largest share that a decision may select.
func (f *grid) reach() (least, most float64) {
	least, most = f.b0, f.b0
	for _, c := range f.cells {
		least, most = min(least, c.samples), max(most, c.samples)
	}
	return least / ReachDown, most * ReachUp
}

// knotsTo returns the shares at which the regression is evaluated: the cells, b0, the ends, and points between them.
// Points within the reach of a decision are close together, and points beyond it are further apart.
func (f *grid) knotsTo(limit int) []place {
	if f.knots != nil && f.limit == limit {
		return f.knots
	}
	most := max(float64(limit), f.b0, 1)
	given := append(make([]float64, 0, len(f.cells)+3), 1, f.b0, most)
	for _, c := range f.cells {
		if c.samples > 1 && c.samples < most {
			given = append(given, c.samples)
		}
	}
	slices.Sort(given)
	given = slices.Compact(given)
	knots := append(make([]float64, 0, 3*len(given)), given[0])
	low, high := f.reach()
	for _, end := range []float64{low, high} {
		if at, found := slices.BinarySearch(given, end); !found && end > 1 && end < most {
			given = slices.Insert(given, at, end)
		}
	}
	for i, samples := range given[1:] {
		last := given[i]
		widest := GridRatio
		if samples <= low || last >= high {
			widest = farRatio
		}
		pieces := max(math.Ceil(min(math.Log(samples/last)/math.Log(widest), samples-last)), 1)
		for k := 1.0; k < pieces; k++ {
			knots = append(knots, last*stat.Exp(k/pieces*math.Log(samples/last)))
		}
		knots = append(knots, samples)
	}
	f.limit, f.knots = limit, make([]place, len(knots))
	for i, samples := range knots {
		f.knots[i] = f.place(samples)
	}
	return f.knots
}

// under returns the expected curve up to limit samples if the rank has one tile, with a weight that is sigmas standard
// deviations above the expected weight. It returns nil if the fit fails numerically.
func (f *shape) under(tile int, sigmas float64, limit int) divide.Curve {
	p := f.regress(tile, f.expected[tile], sigmas)
	if p == nil {
		return nil
	}
	p.chance, p.valley = 1, p.valleyOf(f.known, f.cov)
	one := *f
	one.parts = []part{*p}
	mean, _ := one.curves(limit, 0)
	return mean
}

// curves returns the mean curve, and the mean plus sigmas standard deviations, up to limit samples or b0, whichever is
// larger. With 0 standard deviations, both are the same curve.
func (f *shape) curves(limit int, sigmas float64) (mean, off divide.Curve) {
	knots := f.knotsTo(limit)
	k := make([]float64, len(f.cells))
	bases, spreads := make([]divide.Curve, len(f.parts)), make([]divide.Curve, len(f.parts))
	for i := range f.parts {
		p := &f.parts[i]
		bases[i], spreads[i] = make(divide.Curve, len(knots)), divide.Curve{{Samples: 1, Seconds: 0}}
		if sigmas != 0 {
			spreads[i] = make(divide.Curve, len(knots))
		}
		for j, at := range knots {
			bases[i][j] = divide.Point{Samples: at.samples, Seconds: f.base(p, at, k)}
			if sigmas != 0 {
				spreads[i][j] = divide.Point{Samples: at.samples, Seconds: f.free(p, at, k)}
			}
		}
		settle(bases[i], knotOf(knots, p.valley), func(j int) float64 {
			f.base(p, knots[j], k)
			return f.free(p, knots[j], k)
		})
	}
	var shares []float64
	if f.jagged() {
		for b := 1.0; b <= min(knots[len(knots)-1].samples, everyShare); b++ {
			shares = append(shares, b)
		}
	}
	for _, at := range knots {
		if !f.jagged() || at.samples > everyShare {
			shares = append(shares, at.samples)
		}
	}
	mean, off = make(divide.Curve, len(shares)), make(divide.Curve, len(shares))
	next := 0 // the first knot that is at least the share
	for j, b := range shares {
		m, v := 0.0, 0.0
		for next < len(knots)-1 && knots[next].samples < b {
			next++
		}
		for i := range f.parts {
			p := &f.parts[i]
			z := 0.0
			if b <= everyShare {
				z = tiles[p.tile].feature(b)
			}
			t := onto(bases[i], next, b) / max(1-p.weight*z, leastPlain)
			m += p.chance * t
			v += p.chance * (onto(spreads[i], next, b) + stat.Square(z*t)*p.spread + t*t)
		}
		mean[j] = divide.Point{Samples: b, Seconds: m * f.scale}
		if sigmas != 0 { // rounding can make the variance negative
			off[j] = divide.Point{Samples: b, Seconds: max(m+sigmas*math.Sqrt(max(v-m*m, 0)), 0.02*m) * f.scale}
		}
	}
	if sigmas == 0 {
		return mean, mean
	}
	if !f.jagged() && (sigmas > 0 || f.parts[0].valley == 0) {
		settle(off, knotOf(knots, f.parts[0].valley), func(j int) float64 {
			f.base(&f.parts[0], knots[j], k)
			return f.free(&f.parts[0], knots[j], k)
		})
	}
	return mean, off
}

// knotOf returns the index of the knot at a share, or 0 if there is none.
func knotOf(knots []place, samples float64) int {
	return max(slices.IndexFunc(knots, func(at place) bool { return at.samples == samples }), 0)
}
