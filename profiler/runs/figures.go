package runs

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// Limits of a query.
const (
	mostPoints = 4000
	// mostScanned is the largest number of records that a query reads from files. A record takes about 30 µs of CPU
	// time. For more records, the query uses the cells. Up to step 2048, a cell contains a single step.
	mostScanned = 2000
	// mostLines is the largest number of ranks that a query returns separately, unless the query names ranks.
	mostLines = 8
	// mostValues is the largest number of points of all lines together. Their JSON text has at most about 8 MB. 8 ranks
	// with 20 columns and 800 points fit.
	mostValues = 160_000
)

// QueryError reports a query that is invalid for all runs or for this run.
type QueryError struct{ text string }

func (e *QueryError) Error() string { return e.text }

func queryErrorf(format string, args ...any) error { return &QueryError{fmt.Sprintf(format, args...)} }

// Query selects figures of a run.
type Query struct {
	From, To int64    // first and last step; To 0: the newest step
	Points   int      // largest number of points of a line; fewer if there are many lines
	Columns  []string // names of columns
	Ranks    []int    // nil: all ranks, which are combined into bands if there are more than 8
}

// Figures contains the values of columns over a range of steps.
type Figures struct {
	Version int64     `json:"version"` // version of the run
	From    int64     `json:"from"`
	To      int64     `json:"to"`
	Width   int64     `json:"width"` // number of steps per point; 1: values are those of single steps
	Steps   []int64   `json:"steps"` // last step of each point
	Times   []float64 `json:"times"` // time at the end of this step, s since 1970 UTC; 0 if unknown
	Lines   []Line    `json:"lines"` // without traffic columns that have no values in this range
}

// Values is a list of numbers. NaN is null in JSON.
type Values []float64

// known reports whether the list contains a number.
func (v Values) known() bool { return slices.ContainsFunc(v, func(x float64) bool { return x == x }) }

// MarshalJSON implements json.Marshaler.
func (v Values) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 2+12*len(v))
	b = append(b, '[')
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		if math.IsNaN(x) || math.IsInf(x, 0) {
			b = append(b, "null"...)
			continue
		}
		b = strconv.AppendFloat(b, x, 'g', -1, 64)
	}
	return append(b, ']'), nil
}

// Line contains the values of one column. They belong to one rank or to all ranks together, or form a band over ranks.
type Line struct {
	Column string `json:"column"`
	Unit   string `json:"unit"`
	// Rank is the rank, or -1 for a column that is equal on all ranks, or -2 for a band. In a band, Mean is the
	// median over ranks, Min and Max are the extremes over all ranks and steps, and Worst is the rank with the worst
	// mean.
	Rank  int    `json:"rank"`
	Mean  Values `json:"mean"`
	Min   Values `json:"min,omitempty"` // nil if each point is a single step of one rank
	Max   Values `json:"max,omitempty"`
	Worst []int  `json:"worst,omitempty"`
}

// Values of Line.Rank that do not stand for a single rank.
const (
	AllRanks = -1
	Band     = -2
)

// Figures returns columns over a range of steps. If ctx ends first, it returns the cause of ctx. A column or rank that
// is unknown or given twice is a *QueryError.
func (r *Run) Figures(ctx context.Context, q Query) (*Figures, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, last := r.steps()
	if q.To == 0 || q.To > last {
		q.To = last
	}
	q.From = max(q.From, first, 1)
	c, err := choose(q.Columns)
	if err != nil {
		return nil, err
	}
	shown, err := r.shown(q.Ranks)
	if err != nil {
		return nil, err
	}
	banded := q.Ranks == nil && len(r.ranks) > mostLines
	lines := len(c.shared) + len(c.decisions) + 1 // 1: total
	if banded {
		lines += len(c.own)
	} else {
		lines += len(c.own) * len(shown)
	}
	q.Points = min(max(q.Points, 1), mostPoints, max(1, mostValues/lines))
	out := &Figures{Version: r.version, From: q.From, To: q.To, Width: 1, Steps: []int64{}, Times: []float64{},
		Lines: []Line{}}
	if last == 0 || q.From > q.To {
		return out, nil
	}
	base, collected, err := r.collectAll(ctx, q, c, shown, out)
	if err != nil {
		return nil, err
	}
	decided := newBins(q.From, q.To, out.Width, c.decisions, len(decisionColumns))
	if len(c.decisions) > 0 {
		decided.addCells(r.decided.grid)
	}
	keep := base.filled()
	for _, i := range keep {
		out.Steps, out.Times = append(out.Steps, base.last[i]), append(out.Times, base.time[i])
	}
	for _, i := range c.shared {
		out.Lines = append(out.Lines, base.line(runColumns[i-len(rankColumns)], AllRanks, i, keep))
	}
	for _, i := range c.decisions {
		out.Lines = append(out.Lines, decided.line(decisionColumns[i], AllRanks, i, keep))
	}
	if c.total {
		out.Lines = append(out.Lines, totalOf(collected, keep, func(bin int) int {
			return ranksAt(r.happened.starts.list, base.last[bin], len(r.ranks))
		}))
	}
	for _, i := range c.own {
		if banded {
			if l := band(rankColumns[i], i, collected, keep); i < trafficColumn || l.Mean.known() {
				out.Lines = append(out.Lines, l)
			}
			continue
		}
		for _, k := range shown {
			if l := collected[k].line(rankColumns[i], k, i, keep); i < trafficColumn || l.Mean.known() {
				out.Lines = append(out.Lines, l)
			}
		}
	}
	return out, nil
}

// choice contains the columns of a query, as indices into the tables of columns.
type choice struct {
	own       []int // columns that each rank has, in rankColumns
	shared    []int // columns that are equal on all ranks, len(rankColumns) + index in runColumns
	decisions []int // columns of the balancer's decisions, in decisionColumns
	total     bool  // whether the sum of all ranks' throughputs is requested
}

// choose returns the choice with the given names.
func choose(names []string) (choice, error) {
	var c choice
	for at, name := range names {
		if slices.Contains(names[:at], name) {
			return choice{}, queryErrorf("columns: got %q twice, want each column once", name)
		}
		switch i := find(rankColumns, name); {
		case name == totalColumn.Name:
			c.total = true
		case i >= 0:
			c.own = append(c.own, i)
		case find(runColumns, name) >= 0:
			c.shared = append(c.shared, len(rankColumns)+find(runColumns, name))
		case find(decisionColumns, name) >= 0:
			c.decisions = append(c.decisions, find(decisionColumns, name))
		default:
			return choice{}, queryErrorf("columns: got %q, want %v", name, columnNames())
		}
	}
	return c, nil
}

// shown returns the ranks of a query. nil means every rank.
func (r *Run) shown(ranks []int) ([]int, error) {
	if ranks == nil {
		return r.everyRank(), nil
	}
	for i, k := range ranks {
		if k < 0 || k >= len(r.ranks) {
			return nil, queryErrorf("ranks: got %d, want 0 to %d", k, len(r.ranks)-1)
		}
		if slices.Contains(ranks[:i], k) {
			return nil, queryErrorf("ranks: got %d twice, want each rank once", k)
		}
	}
	return ranks, nil
}

// everyRank returns the numbers of all ranks, in ascending order.
func (r *Run) everyRank() []int {
	all := make([]int, len(r.ranks))
	for i := range all {
		all[i] = i
	}
	return all
}

// collectAll reads the values of a choice, and sets the width of out. It returns the bins of rank 0, from which the
// steps and the columns that are equal on all ranks are taken. It also returns the bins of each rank, or nil for a rank
// that is not needed.
func (r *Run) collectAll(ctx context.Context, q Query, c choice, shown []int, out *Figures) (*bins, []*bins, error) {
	ranks, own := shown, c.own
	if c.total {
		ranks = r.everyRank()
	}
	if c.total || slices.Contains(own, throughputColumn) {
		own = append(slices.Clone(own), throughputColumn, shareColumn, stepColumn)
	}
	if len(own) == 0 {
		ranks = nil
	}
	// Estimate the number of records: a step has at most one record per rank, and rank 0 is always read.
	scan := (q.To-q.From+1)*int64(max(1, len(ranks))) <= mostScanned
	out.Width = r.width(q, scan)
	base, err := r.collect(ctx, 0, q, out.Width, append(slices.Clone(c.shared), own...), scan)
	if err != nil {
		return nil, nil, err
	}
	collected := make([]*bins, len(r.ranks))
	for _, k := range ranks {
		if collected[k] = base; k != 0 {
			if collected[k], err = r.collect(ctx, k, q, out.Width, own, scan); err != nil {
				return nil, nil, err
			}
		}
	}
	return base, collected, nil
}

// width returns the number of steps per point that gives at most q.Points points. If scan is false, the width is a
// multiple of the cells' width.
func (r *Run) width(q Query, scan bool) int64 {
	width := (q.To - q.From + int64(q.Points)) / int64(q.Points)
	if scan {
		return width
	}
	cell := int64(1)
	for _, k := range r.ranks {
		cell = max(cell, k.grid.width)
	}
	return (width + cell - 1) / cell * cell
}

// collect returns the values of a rank, read from its file or computed from its cells.
func (r *Run) collect(ctx context.Context, index int, q Query, width int64, columns []int, scan bool) (*bins, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	k := r.ranks[index]
	b := newBins(q.From, q.To, width, columns, len(k.grid.cells))
	b.ofRank = true
	if !scan {
		b.addCells(k.grid)
		return b, nil
	}
	offset, found := k.grid.offsetOf(q.From)
	if !found {
		return b, nil
	}
	err := runtime.ReadFrom(r.logs, runtime.FileName(index), offset, func(m *runtime.Record) bool {
		if m.Iteration > q.To || ctx.Err() != nil {
			return false
		}
		if m.Iteration >= 1 {
			k.fill(m, len(r.ranks))
			b.add(m.Iteration, seconds(m), k.values)
		}
		return true
	})
	if err != nil && !isMissing(err) {
		return nil, err
	}
	return b, context.Cause(ctx)
}

// mean returns the mean of a column over the steps of a bin. The mean of a throughput is samples / time.
func (b *bins) mean(column, bin int) float64 {
	if b.ofRank && column == throughputColumn {
		return b.cols[shareColumn][bin].mean() / b.cols[stepColumn][bin].mean()
	}
	return b.cols[column][bin].mean()
}

// filled returns the indices of the bins that contain records.
func (b *bins) filled() (keep []int) {
	for i, last := range b.last {
		if last > 0 {
			keep = append(keep, i)
		}
	}
	return keep
}

// line returns the values of column c of one rank. The parameter at is the index of the column in b.
func (b *bins) line(c column, rank, at int, keep []int) Line {
	l := Line{Column: c.Name, Unit: c.Unit, Rank: rank, Mean: make(Values, len(keep))}
	if b.width > 1 {
		l.Min, l.Max = make(Values, len(keep)), make(Values, len(keep))
	}
	for i, k := range keep {
		x := b.cols[at][k]
		l.Mean[i] = b.mean(at, k)
		if b.width > 1 {
			l.Min[i], l.Max[i] = x.low(), x.high()
		}
	}
	return l
}

// band returns the values of a column as a band over all ranks.
func band(c column, at int, ranks []*bins, keep []int) Line {
	l := Line{Column: c.Name, Unit: c.Unit, Rank: Band, Mean: make(Values, len(keep)), Min: make(Values, len(keep)),
		Max: make(Values, len(keep)), Worst: make([]int, len(keep))}
	means := make([]float64, 0, len(ranks))
	lower := c.Name == "throughput" || c.Name == "bus_bandwidth" // for these columns the lowest value is the worst one
	for i, k := range keep {
		means = means[:0]
		l.Min[i], l.Max[i], l.Worst[i] = math.NaN(), math.NaN(), -1
		worst := math.NaN()
		for rank, b := range ranks {
			x := b.cols[at][k]
			if x.n == 0 {
				continue
			}
			m := b.mean(at, k)
			means = append(means, m)
			if !(l.Min[i] <= x.min) {
				l.Min[i] = x.min
			}
			if !(l.Max[i] >= x.max) {
				l.Max[i] = x.max
			}
			if math.IsNaN(worst) || lower && m < worst || !lower && m > worst {
				worst, l.Worst[i] = m, rank
			}
		}
		l.Mean[i] = median(means)
	}
	return l
}

// totalOf returns the sum of the throughputs of all ranks. A point is unknown if a rank has no record of its steps. The
// function size returns, for a bin, the number of ranks of the process that trained the last step of the bin.
func totalOf(ranks []*bins, keep []int, size func(bin int) int) Line {
	l := Line{Column: totalColumn.Name, Unit: totalColumn.Unit, Rank: AllRanks, Mean: make(Values, len(keep))}
	for i, k := range keep {
		n := size(k)
		for rank, b := range ranks {
			if v := b.mean(throughputColumn, k); rank < n || !math.IsNaN(v) {
				l.Mean[i] += v // NaN if the rank has no values
			}
		}
	}
	return l
}

// ranksAt returns the number of ranks of the process that trained a step, or fallback if it is unknown. The list starts
// contains the starts of processes in their order.
func ranksAt(starts []runtime.Event, step int64, fallback int) int {
	for _, e := range slices.Backward(starts) {
		if e.Step < step {
			if e.Start.Ranks > 0 {
				return e.Start.Ranks
			}
			break
		}
	}
	return fallback
}

// median returns the median of values, or NaN if there are none. It sorts the slice values in place.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

func columnNames() (names []string) {
	for _, list := range [][]column{rankColumns, runColumns, decisionColumns, {totalColumn}} {
		for _, c := range list {
			names = append(names, c.Name)
		}
	}
	return names
}
