package estimate

import (
	"cmp"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
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

// manyShares is the number of shares of a type whose pairs are in a table of at most 1 MiB. Pairs with other shares are
// in a map, which takes longer, and whose size follows the pairs in use instead of all pairs.
const manyShares = 256

// pooledRanks is the number of ranks whose measured shares the curve of a type uses. Smaller: the slope of the curve is
// less exact. Larger: a decision with many ranks takes longer.
const pooledRanks = 512

// typeCurve is the curve of a type with many ranks.
type typeCurve struct {
	shape  *shape // its cells are the shares that the ranks measured
	shares shareNumbers
	logs   []float64          // by number of a share: log of its time; NaN: not yet computed
	ratios [][]ratio          // by numbers of two shares, the second one first, for the first manyShares shares
	other  map[[2]int32]ratio // by the same numbers, for all other pairs
	under  memo[hypothetical, *divide.Points]
	// by largest share: expected times, and times with a margin
	drawn        memo[int, [2]*divide.Points]
	optimistic   memo[optimism, [2]divide.Curve] // expected times, and shorter times
	optimisticTo memo[optimismTo, *divide.Points]
}

// memo contains values that are computed once for each key. Most ranks of a type have the same keys, so get remembers
// the last one.
type memo[K comparable, V any] struct {
	values map[K]V
	any    bool // a key was used
	key    K    // last key
	value  V
}

// get returns the value of a key.
func (m *memo[K, V]) get(key K, compute func() V) V {
	if m.any && m.key == key {
		return m.value
	}
	value, known := m.values[key]
	if !known {
		if m.values == nil {
			m.values = map[K]V{}
		}
		value = compute()
		m.values[key] = value
	}
	m.any, m.key, m.value = true, key, value
	return value
}

// hypothetical is the hypothesis of a tile whose weight is sigmas standard deviations above the expected weight.
type hypothetical struct {
	tile   int
	sigmas float64
	limit  int // largest share
}

// optimism is a number of standard deviations below the expected curve.
type optimism struct {
	sigmas float64
	limit  int // largest share
}

// optimismTo is the same for the end points with the shortest times.
type optimismTo struct {
	optimism
	end int
}

// log is the log of [shape.at], computed once for each share.
func (t *typeCurve) log(samples float64) float64 {
	number := t.shares.of(samples)
	t.logs = withRoom(t.logs, number, math.NaN())
	if log := t.logs[number]; log == log {
		return log
	}
	t.logs[number], _ = t.shape.log(samples)
	return t.logs[number]
}

// ratioVariance is [shape.ratioVariance], computed once for each two shares.
func (t *typeCurve) ratioVariance(first, second float64) float64 {
	if first == second {
		return 0
	}
	return t.ratio(first, second).shape
}

// ratio returns the variances of the log of the ratio of the times of two different shares, computed once.
func (t *typeCurve) ratio(first, second float64) ratio {
	from, to := t.shares.of(first), t.shares.of(second)
	if from >= manyShares || to >= manyShares {
		key := [2]int32{int32(to), int32(from)}
		r, known := t.other[key]
		if !known {
			if t.other == nil {
				t.other = map[[2]int32]ratio{}
			}
			r = t.newRatio(first, second)
			t.other[key] = r
		}
		return r
	}
	t.ratios = withRoom(t.ratios, to, nil)
	row := withRoom(t.ratios[to], from, ratio{shape: math.NaN()})
	t.ratios[to] = row
	if r := &row[from]; r.shape != r.shape {
		*r = t.newRatio(first, second)
	}
	return row[from]
}

func (t *typeCurve) newRatio(first, second float64) ratio {
	return ratio{t.shape.ratioVariance(first, second), otherShape(first / second)}
}

// ratio contains variances of the log of the ratio of the times of two shares.
type ratio struct {
	shape float64 // because of the error of the curve; NaN: not yet computed
	other float64 // because a rank has another shape ([otherShape])
}

// withRoom returns a list with an element at an index. New elements are empty.
func withRoom[T any](list []T, index int, empty T) []T {
	for index >= len(list) {
		list = append(list, empty)
	}
	return list
}

// shareNumbers numbers shares in the order of their first use, from 0 on. Decisions with many ranks need these numbers
// several times for each rank, so the numbers of small shares are in a list.
type shareNumbers struct {
	n     int
	small []int32 // by samples: 1 + the number of the share
	other map[float64]int
}

// of returns the number of a share.
func (s *shareNumbers) of(samples float64) int {
	const most = 4096
	if at := int(samples); samples >= 0 && samples < most && float64(at) == samples {
		s.small = withRoom(s.small, at, 0)
		if s.small[at] == 0 {
			s.n++
			s.small[at] = int32(s.n)
		}
		return int(s.small[at]) - 1
	}
	number, known := s.other[samples]
	if !known {
		if s.other == nil {
			s.other = map[float64]int{}
		}
		number = s.n
		s.n++
		s.other[samples] = number
	}
	return number
}

// curves is [shape.curves], computed once for each largest share, without the points that a line replaces.
func (t *typeCurve) curves(limit int, sigmas float64) (mean, cautious *divide.Points) {
	both := t.drawn.get(limit, func() (both [2]*divide.Points) {
		mean, cautious := t.shape.curves(limit, sigmas)
		both[0] = divide.NewPoints(thinned(mean), true)
		if both[1] = both[0]; &mean[0] != &cautious[0] {
			both[1] = divide.NewPoints(thinned(cautious), true)
		}
		return both
	})
	return both[0], both[1]
}

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
