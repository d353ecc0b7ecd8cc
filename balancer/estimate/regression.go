package estimate

import (
	"cmp"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// mostParts is the number of hypotheses of tiles that a prediction uses. Larger values take longer, and change the
// shares little.
const mostParts = 4

// fitShape returns the curve through the cells around the share b0. If the measurements contradict each other so much
// that the fit fails numerically, it uses only the nearest share. It returns nil if that fit fails, too. old is the
// grid of the rank's last curve, or nil.
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

// featuresOf writes to z, for each cell, its feature under a hypothesis multiplied by its time.
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
	l, base := make([]float64, n*n), make([]float64, n)
	for k, bend := range bends {
		bendLog := math.Log(before[k])
		determinant, ok := f.factor(bend.sigma, l)
		copy(base, f.residual)
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

// gainOf returns the log of the evidence of a tile relative to the smooth curve. half contains the features of the
// cells, and base their residuals, both divided by the Cholesky factor. The weight has a normal distribution, truncated
// at its bound.
func gainOf(t *tile, half, base []float64) float64 {
	mean, sigma, most := t.weight()
	v := sigma * sigma
	q, fit := dot(half, half), dot(half, base)
	s := fit - mean*q       // of the residuals minus the mean weight
	spread := v / (1 + v*q) // posterior variance of the weight
	before := logBelowBound[0]
	if t.rounds {
		before = logBelowBound[1]
	}
	gain := mean*(fit-mean*q/2) + spread*s*s/2 - math.Log1p(v*q)/2
	return gain + logBelow(most, mean+spread*s, math.Sqrt(spread)) - before
}

// regress returns the regression under one hypothesis and a bend, or nil if it fails numerically. The weight of the
// tile is sigmas standard deviations above the expected weight.
func (f *shape) regress(h int, bend, sigmas float64) *part {
	l := make([]float64, len(f.cells)*len(f.cells))
	if _, ok := f.factor(bend, l); !ok {
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

// misfit compares the measured times with a curve that rises on both sides of its valley. It returns half the sum of
// the squared deviations, each in standard deviations. The caller subtracts it from the log probability of the
// hypothesis. A hypothesis under which the curve would rise and fall again thus becomes improbable.
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

// factor writes the lower Cholesky factor of the cells' covariance with a bend to l, and returns the log of its
// determinant. ok is false if the factorization fails numerically.
func (f *shape) factor(bend float64, l []float64) (determinant float64, ok bool) {
	n := len(f.cells)
	for i := range n {
		for at := i * n; at <= i*n+i; at++ {
			l[at] = f.straight[at] + bend*bend*f.bent[at]
		}
	}
	if !cholesky(l, n) {
		return 0, false
	}
	for i := range n {
		determinant += math.Log(l[i*n+i])
	}
	return determinant, true
}
