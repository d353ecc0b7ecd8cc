package estimate

import (
	"math"
	"slices"
)

const (
	lenders  = 3 // ranks of a type that lend measured shares. Larger values change the shares little
	mostLent = 6 // measured shares of lenders that the curve of a rank uses. Larger values change the shares little
)

// lend finds the lenders of each rank: the ranks of its type with the most measured shares. Ranks of one type run the
// same kernels, so their curves have the same shape at different levels. The curve of a rank also uses measured shares
// of its lenders. lend shifts their times to the level of the rank, which follows from the rank's time at the share in
// use.
func (t *deviceTypes) lend(ranks []*posterior) {
	for _, group := range t.groups {
		list := make([]int, 0, lenders+2)
		for _, r := range group {
			at := len(list)
			for at > 0 && len(ranks[r].cells) > len(ranks[list[at-1]].cells) {
				at--
			}
			if at <= lenders {
				list = slices.Insert(list, at, r)
				list = list[:min(len(list), lenders+1)]
			}
		}
		for _, r := range group {
			t.lenders[r] = list
		}
	}
}

// knowledge returns the measured shares of a rank and of its lenders, and the covariance of the logs of their times.
func (t *deviceTypes) knowledge(ranks []*posterior, rank int) ([]cell, [][]float64) {
	e := ranks[rank]
	if len(t.lenders) == 0 || t.lenders[rank] == nil || e.current < 0 {
		return e.cells, e.cov
	}
	own := len(e.cells)
	cells, cov := slices.Clone(e.cells), [][]float64(nil)
	type source struct {
		from    *posterior
		at      int
		log     float64 // shift of the lender's times to the level of the rank
		v       float64 // variance of the shift, without the part of the rank
		nearest float64 // distance to the nearest known share, log
	}
	var sources []source
	now := e.cells[e.current]
	logs := make([]float64, own)
	for i, c := range e.cells {
		logs[i] = math.Log(c.samples)
	}
	for _, l := range t.lenders[rank] {
		from := ranks[l]
		if l == rank || from.shape == nil || from.current < 0 {
			continue
		}
		value, variance := from.now(now.samples)
		for i, c := range from.cells {
			if from.known && e.cell(c.samples) < 0 {
				at, nearest := math.Log(c.samples), math.Inf(1)
				for _, l := range logs {
					nearest = min(nearest, math.Abs(at-l))
				}
				sources = append(sources, source{from, i, now.log - value, variance, nearest})
			}
		}
	}
	var lent []source
	for len(lent) < mostLent && len(sources) > 0 { // the share furthest from the known ones is most informative
		best := 0
		for i, s := range sources {
			if s.nearest > sources[best].nearest {
				best = i
			}
		}
		s := sources[best]
		c := s.from.cells[s.at]
		lent = append(lent, s)
		cells = append(cells, cell{samples: c.samples, log: c.log + s.log, age: c.age, steps: c.steps})
		sources = slices.DeleteFunc(sources, func(o source) bool { return o.from.cells[o.at].samples == c.samples })
		for i := range sources {
			away := math.Abs(math.Log(sources[i].from.cells[sources[i].at].samples / c.samples))
			sources[i].nearest = min(sources[i].nearest, away)
		}
	}
	if len(lent) == 0 {
		return e.cells, e.cov
	}
	for i := range own {
		cov = append(cov, slices.Clone(e.cov[i]))
		for range lent {
			cov[i] = append(cov[i], e.cov[i][e.current])
		}
	}
	for i, a := range lent {
		row := slices.Clone(e.cov[e.current])
		for j, b := range lent {
			v := e.cov[e.current][e.current]
			if a.from == b.from {
				v += a.from.cov[a.at][b.at] + a.v
			}
			if i == j {
				v += shapeError * shapeError
			}
			row = append(row, v)
		}
		cov = append(cov, row)
	}
	return cells, cov
}

// now returns the log of the time of a share as of the last window, and its variance. It takes the curve of the last
// decision, and shifts it by the change of the nearest measured share since then.
func (e *posterior) now(samples float64) (value, variance float64) {
	if at := e.cell(samples); at >= 0 {
		return e.cells[at].log, 0
	}
	nearest := e.cells[0]
	for _, c := range e.cells {
		if math.Abs(math.Log(c.samples/samples)) < math.Abs(math.Log(nearest.samples/samples)) {
			nearest = c
		}
	}
	value, variance = e.shape.log(samples)
	was, _ := e.shape.log(nearest.samples)
	return value + nearest.log - was, variance
}
