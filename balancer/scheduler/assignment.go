package scheduler

import "math"

// assignment solves assignment problems; it keeps its memory between calls.
type assignment struct {
	rowPrice, columnPrice, slack []float64
	row, before                  []int // by column
	done                         []bool
}

// solve assigns a different column to each row, with the least sum of the costs. A row whose costs are all +Inf gets no
// column. The result lists the row of each column, counted from 1, or 0 for a free column. It is valid until the next
// call. There must be at least as many columns as rows.
//
// solve adds the rows one by one along shortest augmenting paths (Kuhn, The Hungarian Method for the Assignment
// Problem, 1955, in the form with dual prices). Its time is proportional to rows² * columns.
func (a *assignment) solve(rows, columns int, cost func(row, column int) float64) []int {
	a.rowPrice = append(a.rowPrice[:0], make([]float64, rows+1)...)
	a.columnPrice = append(a.columnPrice[:0], make([]float64, columns+1)...)
	a.slack = append(a.slack[:0], make([]float64, columns+1)...)
	a.row = append(a.row[:0], make([]int, columns+1)...)
	a.before = append(a.before[:0], make([]int, columns+1)...)
	a.done = append(a.done[:0], make([]bool, columns+1)...)
	for row := 1; row <= rows; row++ { // column 0 is the start of a path
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
	return a.row[1:]
}
