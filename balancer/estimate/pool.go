package estimate

import (
	"cmp"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// Ranks of one type run the same kernels, so with many of them, one curve serves all. This curve passes through the
// measured shares of all ranks of the type. A rank contributes the ratios of its times. The more equal the levels of
// the ranks are, the more it also contributes the times themselves. Slower ranks get smaller shares.

const (
	// pooledShares is the number of measured shares through which the curve of a type passes. Larger values change the
	// shares little, and a fit takes a time in proportion to the third power.
	pooledShares = 32
	// mostPasses is the largest number of estimates of the spread of the levels. They end once a time on the curve
	// changes by less than passMoved, log. Fewer: the curve has more of the error that levelsWithin describes.
	mostPasses, passMoved = 10, 0.002
	// unrelated is the standard deviation of the log of the ratio of two times before any rank was measured with both
	// shares.
	unrelated = 0.3
	// heightVariance is the variance of the log of the height of the curve of a type. The height is a convention, as
	// each rank has its own level.
	heightVariance = 1e-8
)

// poolCurves fits the curve of each type with many ranks.
func (m *Model) poolCurves(shares []int, tiles *tilePool) {
	for i, group := range m.types.groups {
		if len(group) <= largeType {
			continue
		}
		t := new(typeCurve)
		old := m.types.curves[i]
		m.types.curves[i] = nil
		members := m.members(group)
		if len(members) == 0 {
			continue
		}
		inUse := make([]float64, 0, len(members))
		for _, r := range members {
			if shares[r] > 0 {
				inUse = append(inUse, float64(shares[r]))
			}
		}
		cells, cov := m.pool(members)
		if cells == nil || len(inUse) == 0 {
			continue
		}
		slices.Sort(inUse)
		var before *shape
		if old != nil {
			before = old.shape
		}
		sharing := 0.0 // ranks that count with this curve in tiles
		for _, r := range group {
			if m.ranks[r].shape == before {
				sharing++
			}
		}
		t.shape = fitShape(cells, cov, &m.bends, tiles.withoutAll(before, sharing), inUse[len(inUse)/2], nil)
		if t.shape == nil {
			continue
		}
		m.types.curves[i] = t
	}
}

// members returns the measured ranks whose times the curve of a type uses: all, or a sample. A rank whose measured
// shares contradicted the last curve does not count, unless all did.
func (m *Model) members(group []int) (ranks []int) {
	for _, odd := range []bool{false, true} {
		for _, r := range group {
			if e := m.ranks[r]; e.current >= 0 && (odd || !e.odd) {
				ranks = append(ranks, r)
			}
		}
		if len(ranks) > 0 {
			break
		}
	}
	if len(ranks) <= pooledRanks {
		return ranks
	}
	sample := make([]int, pooledRanks)
	for i := range sample {
		sample[i] = ranks[stat.Sample(i, len(ranks))]
	}
	return sample
}

// pool returns the shares that the ranks measured, and the logs of their times on a rank of average level, with their
// covariance. It is the generalized least squares with one unknown for each share, one for the level of each rank, and
// one for the mean of these levels.
func (m *Model) pool(ranks []int) (cells []cell, cov [][]float64) {
	cells = m.sharesOf(ranks)
	slices.SortFunc(cells, func(a, b cell) int { return cmp.Compare(a.samples, b.samples) })
	var parts []levelled
	for _, r := range ranks {
		var g levelled
		if g.of(m.ranks[r], cells) {
			parts = append(parts, g)
		}
	}
	n, within := len(cells), slices.Repeat([]float64{math.Inf(1)}, len(parts))
	half, logs := poolLevels(parts, cells, within)
	moved := math.Inf(1)
	for pass := 0; pass < mostPasses && moved > passMoved && half != nil && len(parts) > largeType; pass++ {
		levelsWithin(parts, logs, within)
		var next []float64
		if half, next = poolLevels(parts, cells, within); half != nil {
			moved = 0
			for i := range cells {
				moved = max(moved, math.Abs(next[i]-logs[i]))
			}
			logs = next
		}
	}
	if half == nil {
		return nil, nil
	}
	height := logs[n]
	if len(parts) <= largeType { // without a variance of the levels, logs[n] is not their mean
		var lifts stat.Mean
		for i := range parts {
			lifts.Add(parts[i].lift(logs))
		}
		height = lifts.Or(0)
	}
	cov = make([][]float64, n)
	for i := range cells {
		cells[i].log = logs[i] + height
		unit := make([]float64, n+1)
		unit[i] = 1
		cov[i] = backward(half, forward(half, unit))[:n]
	}
	return cells, cov
}

// poolLevels solves the least squares of [Model.pool] if the levels of the ranks have these variances around their
// mean. It returns the Cholesky factor of the normal equations, and the logs of the times of the shares, followed by
// the mean level. The factor is nil if the computation fails numerically.
func poolLevels(parts []levelled, cells []cell, within []float64) (half, logs []float64) {
	n := len(cells)
	all := n + 1
	half, logs = make([]float64, all*all), make([]float64, all)
	// Before any measurement, the time is mostly proportional to the share.
	largest := cells[n-1].samples
	for i, c := range cells {
		logs[i] = math.Log(priorMean(c.samples/largest)) / stat.Square(unrelated)
		for j := range n {
			half[i*all+j] = 1 / (heightVariance * float64(n*n))
		}
		half[i*all+i] += 1 / stat.Square(unrelated)
	}
	half[n*all+n] = 1 / stat.Square(highestLog)
	for i := range parts {
		parts[i].addTo(half, logs, within[i])
	}
	if !cholesky(half, all) {
		return nil, nil
	}
	return half, backward(half, forward(half, logs))
}

// levelsWithin estimates the variances of the levels of the ranks around their mean. The ranks of a type are nearly
// equal, so different ranks with different shares say something about the ratio of their times, too. Without this, the
// curve would have an error that no number of ranks reduces: a rank gets a smaller share after noise made its time
// long, so its times alone make the smaller share appear too fast.
func levelsWithin(parts []levelled, logs, within []float64) {
	levels, variances := make([]float64, len(parts)), make([]float64, len(parts))
	for i := range parts {
		levels[i], variances[i] = parts[i].lift(logs), 1/parts[i].weight
	}
	mean, spread := robustCenter(levels, variances)
	_, apart := outliers(levels, variances, mean, spread)
	for i := range within {
		within[i] = (1-apart[i])*spread + apart[i]*mostSpread*mostSpread
	}
}

// sharesOf returns the shares that the ranks measured, with the sum of their steps. If there are more than
// pooledShares, it takes those that most ranks measured, and then those that are furthest from these.
func (m *Model) sharesOf(ranks []int) (cells []cell) {
	at, counts := map[float64]int{}, []int(nil)
	for _, r := range ranks {
		for _, c := range m.ranks[r].cells {
			i, known := at[c.samples]
			if !known {
				i = len(cells)
				at[c.samples], cells, counts = i, append(cells, cell{samples: c.samples, age: c.age}), append(counts, 0)
			}
			cells[i].steps, cells[i].age = cells[i].steps+c.steps, min(cells[i].age, c.age)
			counts[i]++
		}
	}
	if len(cells) <= pooledShares {
		return cells
	}
	slices.SortStableFunc(cells, func(a, b cell) int {
		return cmp.Compare(counts[at[b.samples]], counts[at[a.samples]])
	})
	chosen, rest := cells[:pooledShares/2], cells[pooledShares/2:]
	for len(chosen) < pooledShares {
		best, furthest := 0, -1.0
		for i, c := range rest {
			nearest := math.Inf(1)
			for _, d := range chosen {
				nearest = min(nearest, math.Abs(math.Log(c.samples/d.samples)))
			}
			if nearest > furthest {
				best, furthest = i, nearest
			}
		}
		rest[0], rest[best] = rest[best], rest[0]
		chosen, rest = cells[:len(chosen)+1], rest[1:]
	}
	return chosen
}

// levelled is the part of a rank in the least squares of [Model.pool]: its times without its level.
type levelled struct {
	at      []int     // index of each of its shares in the list of shares
	inverse []float64 // of the covariance of its times
	logs    []float64
	ones    []float64 // inverse times ones
	weight  float64   // sum of ones
	flat    []float64 // scratch memory
}

// of sets g to the part of a rank. It returns false if the rank has none of the shares.
func (g *levelled) of(e *posterior, cells []cell) bool {
	g.at, g.logs = g.at[:0], g.logs[:0]
	now := e.cells[e.current].samples
	var from [mostShares + 1]int
	for i, c := range e.cells {
		at, found := slices.BinarySearchFunc(cells, c.samples, func(c cell, samples float64) int {
			return cmp.Compare(c.samples, samples)
		})
		if found {
			from[len(g.at)] = i
			g.at, g.logs = append(g.at, at), append(g.logs, c.log)
		}
	}
	n := len(g.at)
	if n == 0 {
		return false
	}
	if need := 2*n*n + n; cap(g.flat) < need {
		g.flat = make([]float64, need)
	}
	flat := g.flat[:cap(g.flat)]
	half := flat[:n*n]
	g.inverse, g.ones = flat[n*n:2*n*n], flat[2*n*n:2*n*n+n]
	for i := range n {
		for j := range i + 1 {
			half[i*n+j] = e.cov[from[i]][from[j]]
		}
		half[i*n+i] += otherShape(e.cells[from[i]].samples/now) + 1e-9
	}
	if !cholesky(half, n) {
		return false
	}
	g.weight = 0
	for i := range n {
		unit := g.inverse[i*n : i*n+n]
		clear(unit)
		unit[i] = 1
		copy(unit, backward(half, forward(half, unit)))
	}
	for i := range n {
		g.ones[i] = 0
		for j := range n {
			g.ones[i] += g.inverse[i*n+j]
		}
		g.weight += g.ones[i]
	}
	return true
}

// addTo adds the part of the rank to the normal equations, of which the last one is that of the mean level. within is
// the variance of the level of the rank around the mean.
func (g *levelled) addTo(system, right []float64, within float64) {
	n, all := len(g.at), len(right)
	total, last := g.weight+1/within, len(right)-1
	shared := 1 / within / total // part of the mean level in the level of the rank
	mean := dot(g.ones, g.logs)
	for i, a := range g.at {
		right[a] += dot(g.inverse[i*n:i*n+n], g.logs) - g.ones[i]*mean/total
		for j, b := range g.at {
			system[a*all+b] += g.inverse[i*n+j] - g.ones[i]*g.ones[j]/total
		}
		system[last*all+a] += g.ones[i] * shared
		system[a*all+last] += g.ones[i] * shared
	}
	system[last*all+last] += g.weight * shared
	right[last] += mean * shared
}

// lift returns the log of the level of the rank on a curve.
func (g *levelled) lift(logs []float64) (sum float64) {
	for i, at := range g.at {
		sum += g.ones[i] * (g.logs[i] - logs[at])
	}
	return sum / g.weight
}
