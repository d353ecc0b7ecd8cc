package estimate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

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

// manyShares is the number of shares of a type whose pairs are in a table of at most 1 MiB. Pairs with other shares are
// in a map, which takes longer, and whose size follows the pairs in use instead of all pairs.
const manyShares = 256

// ratio contains variances of the log of the ratio of the times of two shares.
type ratio struct {
	shape float64 // because of the error of the curve; NaN: not yet computed
	other float64 // because a rank has another shape ([otherShape])
}

// otherShape returns the variance of the log of the ratio of the times of two shares on a rank, relative to the ratio
// on the curve of its type. It grows with the ratio of the shares.
func otherShape(ratio float64) float64 {
	if ratio == 1 {
		return 0
	}
	return stat.Square(shapeError * min(math.Abs(math.Log(ratio)), 1))
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

// withRoom returns a list with an element at an index. New elements are empty.
func withRoom[T any](list []T, index int, empty T) []T {
	for index >= len(list) {
		list = append(list, empty)
	}
	return list
}
