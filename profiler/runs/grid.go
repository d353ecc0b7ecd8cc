package runs

import (
	"encoding/binary"
	"math"
)

// mostGridBytes limits the memory of the cells of all ranks, in bytes. In most runs, two thirds of the columns have
// values.
const mostGridBytes = 18 << 20

// cell contains statistics of the known values of one column over successive steps.
type cell struct {
	min, max, sum float32
	n             uint32 // number of known values
}

const cellBytes = 16

func (c *cell) add(v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	x := float32(v)
	if c.n == 0 {
		*c = cell{x, x, x, 1}
		return
	}
	c.min, c.max, c.sum, c.n = min(c.min, x), max(c.max, x), c.sum+x, c.n+1
}

func (c *cell) merge(o cell) {
	switch {
	case o.n == 0:
	case c.n == 0:
		*c = o
	default:
		c.min, c.max, c.sum, c.n = min(c.min, o.min), max(c.max, o.max), c.sum+o.sum, c.n+o.n
	}
}

// grid contains statistics of columns in cells of equal length. Cell i covers the steps i*width+1 to (i+1)*width. If a
// step lies beyond the last possible cell, grid merges pairs of cells, so that the width doubles.
type grid struct {
	width int64    // number of steps per cell, a power of two
	most  int      // largest number of cells
	cells [][]cell // [column][cell]; nil for a column without known values, such as traffic of a missing kind of link
	place []place  // one per cell
}

// place describes where the records of a cell are.
type place struct {
	offset int64   // file offset of the first record; -1 if the cell has no records
	last   int64   // step of the last record
	time   float64 // time of the last record, s since 1970 UTC
}

// newGrid returns a grid with the given number of columns and at most limit cells.
func newGrid(columns, limit int) *grid {
	return &grid{width: 1, most: max(2, limit&^1), cells: make([][]cell, columns)}
}

// cellsFor returns the number of cells per grid for which all grids of a run fit into mostGridBytes.
func cellsFor(ranks, columns int) int {
	const best, least = 2048, 32
	return min(best, max(least, mostGridBytes/(cellBytes*columns*max(ranks, 1))))
}

// add adds a record. The first step is 1.
func (g *grid) add(step, offset int64, time float64, values []float64) {
	at := (step - 1) / g.width
	for at >= int64(g.most) {
		g.merge()
		at = (step - 1) / g.width
	}
	for int64(len(g.place)) <= at {
		g.place = append(g.place, place{offset: -1})
		for c := range g.cells {
			if g.cells[c] != nil {
				g.cells[c] = append(g.cells[c], cell{})
			}
		}
	}
	p := &g.place[at]
	if p.offset < 0 {
		p.offset = offset
	}
	p.last, p.time = step, time
	for c, v := range values {
		if g.cells[c] == nil {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				continue
			}
			g.cells[c] = make([]cell, len(g.place))
		}
		g.cells[c][at].add(v)
	}
}

// merge doubles the width of all cells.
func (g *grid) merge() {
	g.width *= 2
	half := (len(g.place) + 1) / 2
	for i := range half {
		p := g.place[2*i]
		if 2*i+1 < len(g.place) {
			if q := g.place[2*i+1]; q.offset >= 0 {
				if p.offset < 0 {
					p.offset = q.offset
				}
				p.last, p.time = q.last, q.time
			}
		}
		g.place[i] = p
		for _, col := range g.cells {
			if col == nil {
				continue
			}
			c := col[2*i]
			if 2*i+1 < len(col) {
				c.merge(col[2*i+1])
			}
			col[i] = c
		}
	}
	g.place = g.place[:half]
	for c := range g.cells {
		if g.cells[c] != nil {
			g.cells[c] = g.cells[c][:half]
		}
	}
}

// offsetOf returns a file offset. All records of the given step and of later steps start at or after this offset. found
// is false if there are no such records.
func (g *grid) offsetOf(step int64) (offset int64, found bool) {
	at := max(0, (step-1)/g.width)
	for ; at < int64(len(g.place)); at++ {
		if g.place[at].offset >= 0 {
			return g.place[at].offset, true
		}
	}
	return 0, false
}

// bytes returns the grid in the format of an index file.
func (g *grid) bytes() []byte {
	order := binary.LittleEndian
	b := order.AppendUint64(nil, uint64(g.width))
	b = order.AppendUint64(b, uint64(g.most))
	b = order.AppendUint64(b, uint64(len(g.place)))
	for _, p := range g.place {
		b = order.AppendUint64(b, uint64(p.offset))
		b = order.AppendUint64(b, uint64(p.last))
		b = order.AppendUint64(b, math.Float64bits(p.time))
	}
	for c, column := range g.cells {
		if column == nil {
			continue
		}
		b = order.AppendUint64(b, uint64(c))
		for _, x := range column {
			b = order.AppendUint32(b, math.Float32bits(x.min))
			b = order.AppendUint32(b, math.Float32bits(x.max))
			b = order.AppendUint32(b, math.Float32bits(x.sum))
			b = order.AppendUint32(b, x.n)
		}
	}
	return b
}

// gridOf decodes a grid. ok is false if b does not contain a grid with the given number of columns.
func gridOf(b []byte, columns int) (g *grid, ok bool) {
	order, left := binary.LittleEndian, b
	number := func() (v uint64) {
		if len(left) < 8 {
			ok = false
			return 0
		}
		v, left = order.Uint64(left), left[8:]
		return v
	}
	ok = true
	width, most, n := int64(number()), number(), number()
	if !ok || width < 1 || most < 2 || most > 1<<16 || n > most {
		return nil, false
	}
	g = newGrid(columns, int(most))
	g.width = width
	for range n {
		p := place{offset: int64(number()), last: int64(number())}
		p.time = math.Float64frombits(number())
		g.place = append(g.place, p)
	}
	for ok && len(left) > 0 {
		c := number()
		if !ok || c >= uint64(columns) || g.cells[c] != nil || uint64(len(left)) < n*cellBytes {
			return nil, false
		}
		g.cells[c] = make([]cell, n)
		for i := range g.cells[c] {
			at := left[i*cellBytes:]
			g.cells[c][i] = cell{math.Float32frombits(order.Uint32(at)), math.Float32frombits(order.Uint32(at[4:])),
				math.Float32frombits(order.Uint32(at[8:])), order.Uint32(at[12:])}
		}
		left = left[n*cellBytes:]
	}
	return g, ok
}

// reset removes all records.
func (g *grid) reset() { *g = *newGrid(len(g.cells), g.most) }

// bins collects the values for a query. Unlike a grid, it has exact sums, and a width and a range of steps that the
// query determines.
type bins struct {
	from, to, width int64
	n               int
	cols            [][]bin // [column][bin]; nil for columns that are not requested
	last            []int64 // step of the last record of each bin; 0 if it has none
	time            []float64
	ofRank          bool // the columns are those of a rank, not those of decisions
}

// bin contains the same statistics as a cell, with exact sums.
type bin struct {
	min, max, sum float64
	n             int64
}

func newBins(from, to, width int64, columns []int, of int) *bins {
	b := &bins{from: from, to: to, width: width, n: int((to-from)/width) + 1, cols: make([][]bin, of)}
	b.last, b.time = make([]int64, b.n), make([]float64, b.n)
	for _, c := range columns {
		b.cols[c] = make([]bin, b.n)
	}
	return b
}

// at returns the index of the bin of a step. It returns false if the step is out of range.
func (b *bins) at(step int64) (int, bool) {
	if step < b.from {
		return 0, false
	}
	i := (step - b.from) / b.width
	return int(i), i < int64(b.n)
}

func (b *bins) add(step int64, time float64, values []float64) {
	i, ok := b.at(step)
	if !ok {
		return
	}
	b.last[i], b.time[i] = step, time
	for c, col := range b.cols {
		if col == nil || math.IsNaN(values[c]) || math.IsInf(values[c], 0) {
			continue
		}
		v, x := values[c], &col[i]
		if x.n == 0 {
			*x = bin{v, v, v, 1}
			continue
		}
		x.min, x.max, x.sum, x.n = min(x.min, v), max(x.max, v), x.sum+v, x.n+1
	}
}

// addCells adds those cells of a grid that are in the range of the bins. The width of the bins must be a multiple of
// the width of the cells.
func (b *bins) addCells(g *grid) {
	for k, p := range g.place {
		last := min(p.last, b.to) // the last cell may also contain later steps
		i, ok := b.at(last)
		if p.offset < 0 || !ok || int64(k)*g.width >= b.to {
			continue
		}
		b.last[i], b.time[i] = last, p.time
		for c, col := range b.cols {
			if col == nil || g.cells[c] == nil || g.cells[c][k].n == 0 {
				continue
			}
			o, x := g.cells[c][k], &col[i]
			if x.n == 0 {
				x.min, x.max = float64(o.min), float64(o.max)
			}
			x.min, x.max = min(x.min, float64(o.min)), max(x.max, float64(o.max))
			x.sum, x.n = x.sum+float64(o.sum), x.n+int64(o.n)
		}
	}
}

// mean returns the mean of the values, or NaN if there are none.
func (x bin) mean() float64 {
	if x.n == 0 {
		return math.NaN()
	}
	return x.sum / float64(x.n)
}

// low and high return the extreme values, or NaN if there are none.
func (x bin) low() float64 {
	if x.n == 0 {
		return math.NaN()
	}
	return x.min
}

func (x bin) high() float64 {
	if x.n == 0 {
		return math.NaN()
	}
	return x.max
}

// shrink merges cells until the grid is within its new limit. The parameter most is this limit: the largest number of
// cells.
func (g *grid) shrink(most int) {
	g.most = max(2, min(g.most, most&^1))
	for len(g.place) > g.most {
		g.merge()
	}
}
