package scheduler

import "math"

// assignment solves assignment problems; it keeps its memory between calls.
type assignment struct {
	rowPrice, columnPrice, slack []float64
	row, before                  []int // by column
	done                         []bool
	columns                      []int // by row
}

// solve assigns each row its own column, so that the sum of the costs is least; -1 is a row without a column, if all its costs
// are +Inf. It adds the rows one by one along shortest augmenting paths (Kuhn, The Hungarian Method for the Assignment Problem,
// 1955, in the form with prices), in a time proportional to rows² * columns. There must be at least as many columns as rows.
// The slice is valid until the next call.
func (a *assignment) solve(rows, columns int, cost func(row, column int) float64) []int {
	a.rowPrice, a.columnPrice, a.slack = zeroed(a.rowPrice, rows+1), zeroed(a.columnPrice, columns+1), zeroed(a.slack, columns+1)
	a.row, a.before, a.done = zeroed(a.row, columns+1), zeroed(a.before, columns+1), zeroed(a.done, columns+1)
	a.columns = zeroed(a.columns, rows)
	for row := 1; row <= rows; row++ { // rows and columns count from 1; column 0 is the start of a path
		for c := range a.slack {
			a.slack[c], a.done[c] = math.Inf(1), false
		}
		column, found := 0, true
		a.row[0] = row
		for a.row[column] != 0 {
			a.done[column] = true
			at, least, next := a.row[column], math.Inf(1), -1
			for c := 1; c <= columns; c++ {
				if a.done[c] {
					continue
				}
				if v := cost(at-1, c-1) - a.rowPrice[at] - a.columnPrice[c]; v < a.slack[c] {
					a.slack[c], a.before[c] = v, column
				}
				if a.slack[c] < least {
					least, next = a.slack[c], c
				}
			}
			if next < 0 {
				found = false
				break
			}
			for c := 0; c <= columns; c++ {
				if a.done[c] {
					a.rowPrice[a.row[c]] += least
					a.columnPrice[c] -= least
				} else {
					a.slack[c] -= least
				}
			}
			column = next
		}
		for found && column != 0 {
			from := a.before[column]
			a.row[column], column = a.row[from], from
		}
	}
	for r := range a.columns {
		a.columns[r] = -1
	}
	for c := 1; c <= columns; c++ {
		if a.row[c] > 0 {
			a.columns[a.row[c]-1] = c - 1
		}
	}
	return a.columns
}

// zeroed returns a slice of n zeros, which reuses the memory of v.
func zeroed[E any](v []E, n int) []E {
	if cap(v) < n {
		return make([]E, n)
	}
	v = v[:n]
	clear(v)
	return v
}
