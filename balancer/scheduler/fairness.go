package scheduler

// fairness computes the allocation of max-min fairness: the fraction x[j][t] of time that job j should spend on GPU
// type t. The level is the rate that all jobs reach, unless their best rate is lower.
//
//	rate[j][t]   speed of job j on type t, in any unit that makes jobs comparable; 0: does not run there
//	gpus[j]      GPUs of job j
//	size[t]      GPUs of type t
//
//	max level  such that  sum over t of rate[j][t] * x[j][t] >= min(level, best rate of j)  for all j
//	                      sum over t of x[j][t] <= 1                                       for all j
//	                      sum over j of gpus[j] * x[j][t] <= size[t]                       for all t
//
// Without the second argument of min, this is the linear program of Gavel (Narayanan et al., OSDI 2020, section 4.1),
// in which the level cannot exceed the best rate of any job. With min, the rates of other jobs can exceed the best rate
// of one job.
//
// solve finds the level by bisection. At given prices of the types, each job has a cheapest way to reach the level, on
// one or two types. These ways of all jobs together are a column. A small linear program, with one row for each type,
// computes a convex combination of columns that minimizes the load of the most loaded type. Its dual prices give the
// next column (column generation, Dantzig and Wolfe 1960). The search ends when no column improves the combination, so
// the result is exact up to levelPrecision.
type fairness struct {
	rate [][]float64
	gpus []float64
	size []float64

	// simplex tableau of the small program: max sum z, subject to sum over columns of load[t] * z <= 1 for each type t
	tableau [][]float64 // row t: the inverse of the basis, one entry for each type, then the right-hand side
	basis   []int       // by row: column, or -1 for a slack variable
	columns [][]float64 // by column: x of all jobs, job by job
	spare   [][]float64
	price   []float64
	load    []float64
	turn    []float64 // by row: the entering column
}

const (
	// levelPrecision is the relative precision of the level.
	levelPrecision = 1e-6
	// levelRounding is the relative rounding error by which an allocation may exceed the GPUs of a type.
	levelRounding = 1e-10
	// maxColumns limits the columns for one level. In practice, 10 to 40 suffice.
	maxColumns = 500
)

// solve returns x, job by job, and within a job type by type. The slice is valid until the next call.
func (f *fairness) solve() (x []float64, level float64) {
	low, high := 0.0, 0.0
	for _, r := range f.rate {
		for _, v := range r {
			high = max(high, v)
		}
	}
	if x, ok := f.reach(high); ok {
		return x, high
	}
	for high-low > levelPrecision*high {
		mid := (low + high) / 2
		if _, ok := f.reach(mid); ok {
			low = mid
		} else {
			high = mid
		}
	}
	x, _ = f.reach(low)
	return x, low
}

// reach finds an allocation that reaches a level. ok is false if there is none.
func (f *fairness) reach(level float64) (x []float64, ok bool) {
	types := len(f.size)
	f.start(types)
	for t := range f.price { // each GPU of a type has the same price
		f.price[t] = 1 / f.size[t]
	}
	for len(f.columns) < maxColumns {
		column := f.cheapest(level)
		cost, worst := 0.0, 0.0
		for t := range f.load {
			cost += f.price[t] * f.load[t] * f.size[t]
			worst = max(worst, f.load[t])
		}
		if worst <= 1+levelRounding { // this column alone fits
			return column, true
		}
		if f.total() >= 1-levelRounding {
			return f.mixture(), true
		}
		// The prices sum to total() over full types. A column whose cost is at least 1 cannot improve the program.
		if cost >= 1-levelRounding/10 && len(f.columns) > 1 {
			break
		}
		f.enter()
	}
	if f.total() >= 1-levelRounding {
		return f.mixture(), true
	}
	return nil, false
}

// start empties the program: its basis consists of slack variables.
func (f *fairness) start(types int) {
	f.spare = append(f.spare, f.columns...)
	f.columns = f.columns[:0]
	if len(f.tableau) != types {
		f.tableau, f.basis = make([][]float64, types), make([]int, types)
		for t := range f.tableau {
			f.tableau[t] = make([]float64, types+1)
		}
		f.price, f.load, f.turn = make([]float64, types), make([]float64, types), make([]float64, types)
	}
	for t := range f.tableau {
		clear(f.tableau[t])
		f.tableau[t][t], f.tableau[t][types] = 1, 1
		f.basis[t] = -1
	}
}

// cheapest appends the column with the least cost at the current prices. It also computes the column's load: the
// fraction of each type that the column uses.
func (f *fairness) cheapest(level float64) []float64 {
	types := len(f.size)
	var x []float64
	if n := len(f.spare); n > 0 {
		x, f.spare = f.spare[n-1], f.spare[:n-1]
	}
	if n := types * len(f.rate); cap(x) < n {
		x = make([]float64, n)
	} else {
		x = x[:n]
	}
	clear(x)
	clear(f.load)
	for j, rate := range f.rate {
		goal := 0.0
		for _, v := range rate {
			goal = max(goal, v)
		}
		goal = min(goal, level)
		best, a, b, part := -1.0, 0, 0, 0.0
		for t, v := range rate {
			if v >= goal && v > 0 { // type t alone
				if cost := f.price[t] * goal / v; best < 0 || cost < best {
					best, a, b, part = cost, t, t, goal/v
				}
				for u, w := range rate { // the rest of the time on a slower type
					if w > 0 && w < goal {
						fast := (goal - w) / (v - w)
						if cost := f.price[t]*fast + f.price[u]*(1-fast); cost < best {
							best, a, b, part = cost, t, u, fast
						}
					}
				}
			}
		}
		if best < 0 {
			continue
		}
		at := x[j*types : (j+1)*types]
		at[a] = part
		f.load[a] += part * f.gpus[j] / f.size[a]
		if a != b {
			at[b] = 1 - part
			f.load[b] += (1 - part) * f.gpus[j] / f.size[b]
		}
	}
	f.columns = append(f.columns, x)
	return x
}

// enter adds the last column to the basis, then slack variables whose price is negative, and computes the prices.
func (f *fairness) enter() {
	types := len(f.size)
	for t := range f.tableau {
		f.turn[t] = 0
		for u := range types {
			f.turn[t] += f.tableau[t][u] * f.load[u]
		}
	}
	f.pivot(len(f.columns) - 1)
	for range maxColumns {
		least := 0
		for u := range f.price {
			f.price[u] = 0
			for t, column := range f.basis {
				if column >= 0 {
					f.price[u] += f.tableau[t][u]
				}
			}
			if f.price[u] < f.price[least] {
				least = u
			}
		}
		if f.price[least] >= -1e-13 {
			break
		}
		for t := range f.tableau { // the slack variable of the type with index least
			f.turn[t] = f.tableau[t][least]
		}
		f.pivot(-1)
	}
	for u := range f.price {
		f.price[u] = max(0, f.price[u]) / f.size[u]
	}
}

// pivot adds a column with direction f.turn to the basis.
func (f *fairness) pivot(column int) {
	types := len(f.size)
	row, least := -1, 0.0
	for t, d := range f.turn {
		if d > 1e-12 {
			if ratio := f.tableau[t][types] / d; row < 0 || ratio < least {
				row, least = t, ratio
			}
		}
	}
	if row < 0 {
		return
	}
	pivot(f.tableau, f.turn, row)
	f.basis[row] = column
}

// pivot is a step of the simplex method: a column enters the basis, and the column of a row leaves it. turn contains
// the entering column in the current basis, one value per row.
func pivot(rows [][]float64, turn []float64, row int) {
	for u := range rows[row] {
		rows[row][u] /= turn[row]
	}
	for r := range rows {
		if r != row {
			for u := range rows[r] {
				rows[r][u] -= turn[r] * rows[row][u]
			}
		}
	}
}

// total returns the sum of z: the inverse of the load of the most loaded type.
func (f *fairness) total() (sum float64) {
	for t, column := range f.basis {
		if column >= 0 {
			sum += f.tableau[t][len(f.size)]
		}
	}
	return sum
}

// mixture returns the convex combination of the columns of the basis.
func (f *fairness) mixture() []float64 {
	f.columns = append(f.columns, make([]float64, len(f.size)*len(f.rate)))
	x, sum := f.columns[len(f.columns)-1], f.total()
	for t, column := range f.basis {
		if column >= 0 {
			weight := f.tableau[t][len(f.size)] / sum
			for i, v := range f.columns[column] {
				x[i] += weight * v
			}
		}
	}
	return x
}
