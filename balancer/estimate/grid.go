package estimate

import (
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

func (g *grid) place(samples float64) place {
	x := samples / g.b1
	return place{samples: samples, x: x, away: math.Log(samples / g.b0), mean: priorMean(x)}
}

// reach returns the smallest and the largest share that a decision may select.
func (f *grid) reach() (least, most float64) {
	return min(f.b0, f.smallest) / ReachDown, max(f.b0, f.b1) * ReachUp
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

// knotOf returns the index of the knot at a share, or 0 if there is none.
func knotOf(knots []place, samples float64) int {
	return max(slices.IndexFunc(knots, func(at place) bool { return at.samples == samples }), 0)
}
