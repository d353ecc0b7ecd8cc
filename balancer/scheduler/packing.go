package scheduler

import (
	"cmp"
	"math"
	"slices"
)

// packing gives GPUs of at most one type to each job, so that the sum of the values is largest. Jobs with the same
// number of GPUs and the same values form a group:
//
//	jobs[k]      jobs of group k
//	gpus[k]      GPUs of each of these jobs
//	value[k][t]  value of one of these jobs on GPUs of type t; at most 0: the job does not run there
//	size[t]      GPUs of type t
//
//	max  sum over k, t of value[k][t] * taken[k][t]
//	such that  sum over t of taken[k][t] <= jobs[k]                  for all k
//	           sum over k of gpus[k] * taken[k][t] <= size[t]        for all t
//	           taken[k][t] is an integer of at least 0
//
// This integer program is NP-hard (it contains the knapsack problem). solve works in three steps:
//
//  1. The linear program without the last condition gives an upper bound and prices of the GPUs. Column generation
//     solves it: at given prices, each job has a best type, and these types of all jobs together are a column (Dantzig
//     and Wolfe, Decomposition Principle for Linear Programs, 1960). Any prices give a valid bound, so the bound also
//     holds if the number of columns reaches its limit.
//  2. A greedy allocation by value minus price gives a lower bound.
//  3. Branch and bound closes the gap. The loss of a choice is the amount by which the choice lowers the bound. Choices
//     whose loss exceeds the gap are left out, which usually leaves few jobs. The search also leaves out a state that
//     it has reached before with the same free GPUs and no greater loss. It may visit a state again with a smaller
//     loss.
//
// If the search reaches its limit, the result is the best allocation so far. Its value differs from the optimum by at
// most the difference between the two results of solve.
type packing struct {
	size  []int
	jobs  []int
	gpus  []int
	value []float64 // by group and type
	taken []int     // result: by group and type

	price  []float64 // by type; at least 0
	prices []float64 // buffer of dual: by row
	load   []float64 // of a column, by row
	turn   []float64
	cost   []float64   // by row: value of the column in the basis; 0 for a slack variable
	rows   [][]float64 // by row: the inverse of the basis, then the right-hand side
	order  []option
	greedy []int // buffer

	items  []packed
	pick   []int
	best   []int
	free   []int
	budget float64 // the loss of a better allocation is less than this
	nodes  int     // visits that remain to the search; solve sets it
	cut    bool    // the search reached its limit
	found  bool
	seen   map[uint64]float64 // by state: least loss with which the search reached it
	wide   uint64             // number of different states of the free GPUs; 0: too many for seen
	deep   uint64             // largest number of options of a group, plus 1
}

// packed is one job of the search.
type packed struct {
	group   int
	options []option // the least loss first
	first   bool     // the job before it belongs to another group
	rest    []int    // by type: GPUs that this job and the later ones can use
}

// option is GPUs of a type for a job of a group; typ is -1 for no GPUs.
type option struct {
	group, typ int
	key        float64 // greedy: order; search: loss
}

const (
	// packingNodes is the largest number of visits of states in the searches of one round, some ms. Lists of jobs for
	// the default cluster needed up to 3,300 at loads to 1.5, and 14,200 at load 3. With 1<<18, four lists for 108 GPUs
	// took 2.8 to 7.5 times as long. The largest gap was about half as large, and mean completion times changed by up
	// to 1.3 %.
	packingNodes = 1 << 14
	// packingColumns limits the columns of the linear program. In practice, 10 to 40 suffice.
	packingColumns = 500
	// packingRounding is the rounding error of sums of values, which are of the order of 1.
	packingRounding = 1e-9
)

// reset begins a problem. Call add for each group.
func (p *packing) reset(size []int) {
	p.size = append(p.size[:0], size...)
	p.jobs, p.gpus, p.value = p.jobs[:0], p.gpus[:0], p.value[:0]
}

// add adds a group and returns its values by type, which the caller must set.
func (p *packing) add(jobs, gpus int) (value []float64) {
	p.jobs, p.gpus = append(p.jobs, jobs), append(p.gpus, gpus)
	n := len(p.value)
	for range p.size {
		p.value = append(p.value, 0)
	}
	return p.value[n:]
}

// solve sets taken. value is the sum of the values, and no allocation has a sum above bound. bound equals value if the
// allocation is optimal up to rounding. nodes limits the visits of the search, and p.nodes is the number of visits that
// remain.
func (p *packing) solve(nodes int) (value, bound float64) {
	types := len(p.size)
	for i := range p.value {
		if v := p.value[i]; !(v > 0) || p.gpus[i/types] > p.size[i%types] {
			p.value[i] = 0
		}
	}
	p.nodes = nodes
	bound = p.dual()
	p.taken = append(p.taken[:0], make([]int, len(p.value))...)
	value = p.fill(p.taken, p.price)
	p.greedy = append(p.greedy[:0], make([]int, len(p.value))...)
	if v := p.fill(p.greedy, nil); v > value+packingRounding {
		value = v
		copy(p.taken, p.greedy)
	}
	if bound-value <= packingRounding {
		return value, value
	}
	p.search(bound, value)
	if p.found {
		value = p.total(p.taken)
	}
	if !p.cut {
		bound = value
	}
	return value, max(value, bound)
}

// total returns the value of an allocation.
func (p *packing) total(taken []int) (sum float64) {
	for i, n := range taken {
		sum += float64(n) * p.value[i]
	}
	return sum
}

// dual solves the linear program, sets price, and returns the upper bound. The basis has a row for each type, and a
// row for the sum of the weights of the columns.
func (p *packing) dual() (bound float64) {
	types := len(p.size)
	rows := types + 1
	if len(p.rows) != rows {
		p.rows, p.cost, p.turn = make([][]float64, rows), make([]float64, rows), make([]float64, rows)
		p.prices, p.load, p.price = make([]float64, rows), make([]float64, rows), make([]float64, types)
		for r := range p.rows {
			p.rows[r] = make([]float64, rows+1)
		}
	}
	for r := range p.rows {
		clear(p.rows[r])
		p.rows[r][r], p.cost[r] = 1, 0
		if p.rows[r][rows] = 1; r < types {
			p.rows[r][rows] = float64(p.size[r])
		}
	}
	bound = math.Inf(1)
	for range packingColumns {
		least := 0
		for u := range rows {
			p.prices[u] = 0
			for r := range rows {
				p.prices[u] += p.cost[r] * p.rows[r][u]
			}
			if p.prices[u] < p.prices[least] {
				least = u
			}
		}
		if p.prices[least] < -1e-12 { // this slack variable enters
			for r := range rows {
				p.turn[r] = p.rows[r][least]
			}
			if !p.pivot(0) {
				break
			}
			continue
		}
		worth, reduced := p.column()
		upper := reduced
		for t, n := range p.size {
			upper += max(0, p.prices[t]) * float64(n)
		}
		if upper < bound {
			bound = upper
			for t := range types {
				p.price[t] = max(0, p.prices[t])
			}
		}
		if reduced <= p.prices[types]+packingRounding/10 {
			break // no column improves the linear program
		}
		for r := range rows {
			p.turn[r] = 0
			for u := range rows {
				p.turn[r] += p.rows[r][u] * p.load[u]
			}
		}
		if !p.pivot(worth) {
			break
		}
	}
	return bound
}

// column gives each job its best type at the current prices, and sets load to the GPUs that all jobs use. worth is the
// sum of the values; reduced is this sum minus the prices.
func (p *packing) column() (worth, reduced float64) {
	types := len(p.size)
	clear(p.load)
	p.load[types] = 1
	for k, n := range p.jobs {
		best, typ := 0.0, -1
		for t := range types {
			if v := p.value[k*types+t]; v > 0 {
				if v -= max(0, p.prices[t]) * float64(p.gpus[k]); v > best {
					best, typ = v, t
				}
			}
		}
		if typ >= 0 {
			worth += float64(n) * p.value[k*types+typ]
			reduced += float64(n) * best
			p.load[typ] += float64(n * p.gpus[k])
		}
	}
	return worth, reduced
}

// pivot adds a column with direction turn to the basis. It returns false if no row limits the column.
func (p *packing) pivot(cost float64) bool {
	last, row, least := len(p.rows), -1, 0.0
	for r, d := range p.turn {
		if d > 1e-10 {
			if ratio := p.rows[r][last] / d; row < 0 || ratio < least {
				row, least = r, ratio
			}
		}
	}
	if row < 0 {
		return false
	}
	pivot(p.rows, p.turn, row)
	p.cost[row] = cost
	return true
}

// fill adds jobs to an empty allocation while GPUs are free, and returns the value. The jobs with the largest value
// minus price per GPU come first. prices may be nil.
func (p *packing) fill(taken []int, prices []float64) float64 {
	types := len(p.size)
	p.order = p.order[:0]
	for i, v := range p.value {
		if k, t := i/types, i%types; v > 0 && p.jobs[k] > 0 {
			key := v / float64(p.gpus[k])
			if prices != nil {
				key -= prices[t]
			}
			p.order = append(p.order, option{k, t, key})
		}
	}
	slices.SortStableFunc(p.order, func(a, b option) int { return cmp.Compare(b.key, a.key) })
	p.free = append(p.free[:0], p.size...)
	for _, o := range p.order {
		n := p.jobs[o.group]
		for t := range types {
			n -= taken[o.group*types+t]
		}
		n = min(n, p.free[o.typ]/p.gpus[o.group])
		taken[o.group*types+o.typ] += n
		p.free[o.typ] -= n * p.gpus[o.group]
	}
	return p.total(taken)
}

// search looks for an allocation with a value above the given one. bound is the upper bound at the current prices.
func (p *packing) search(bound, value float64) {
	types := len(p.size)
	p.items, p.cut, p.found = p.items[:0], false, false
	p.budget = bound - value
	lost := 0.0 // sum of the losses of jobs that get no GPUs in any better allocation
	p.deep = 1
	for k, jobs := range p.jobs {
		base, copies := 0.0, 0
		for t, price := range p.price {
			if v := p.value[k*types+t]; v > 0 {
				base = max(base, v-price*float64(p.gpus[k]))
				copies += p.size[t] / p.gpus[k]
			}
		}
		copies = min(copies, jobs)
		lost += float64(jobs-copies) * base
		var options []option
		for t, price := range p.price {
			if v := p.value[k*types+t]; v > 0 {
				if loss := base - (v - price*float64(p.gpus[k])); loss < p.budget {
					options = append(options, option{k, t, max(0, loss)})
				}
			}
		}
		if len(options) == 0 {
			lost += float64(copies) * base
			continue
		}
		if base < p.budget {
			options = append(options, option{k, -1, base})
		}
		slices.SortStableFunc(options, func(a, b option) int { return cmp.Compare(a.key, b.key) })
		p.deep = max(p.deep, uint64(len(options)))
		for n := range copies {
			p.items = append(p.items, packed{group: k, options: options, first: n == 0})
		}
	}
	p.arrange()
	p.pick = append(p.pick[:0], make([]int, len(p.items))...)
	p.free = append(p.free[:0], p.size...)
	p.branch(0, lost)
	if !p.found {
		return
	}
	clear(p.taken)
	for i, choice := range p.best {
		if o := p.items[i].options[choice]; o.typ >= 0 {
			p.taken[o.group*types+o.typ]++
		}
	}
}

// arrange sorts the groups of the search, and prepares its data. Groups with one option come first, because they need
// no search, then those with the most GPUs, because they leave the fewest choices to others.
func (p *packing) arrange() {
	types := len(p.size)
	single := func(a packed) int {
		if len(a.options) == 1 {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(p.items, func(a, b packed) int {
		return cmp.Or(cmp.Compare(single(a), single(b)), cmp.Compare(p.gpus[b.group], p.gpus[a.group]),
			cmp.Compare(a.group, b.group))
	})
	rest := make([]int, (len(p.items)+1)*types)
	for i := len(p.items) - 1; i >= 0; i-- {
		at := rest[i*types : (i+1)*types]
		copy(at, rest[(i+1)*types:])
		for _, o := range p.items[i].options {
			if o.typ >= 0 {
				at[o.typ] += p.gpus[o.group]
			}
		}
		p.items[i].rest = at
	}
	p.wide = 1
	for _, n := range p.size {
		if p.wide *= uint64(n) + 1; p.wide > 1<<40 {
			p.wide = 0
			break
		}
	}
	if (p.wide>>20)*uint64(len(p.items)+1)*p.deep > 1<<40 {
		p.wide = 0
	}
	if len(p.seen) > 1<<12 || p.seen == nil { // clear takes time proportional to the largest number of entries so far
		p.seen = map[uint64]float64{}
	} else {
		clear(p.seen)
	}
}

// branch chooses the option of item i. loss is the sum of the losses of the choices before it.
func (p *packing) branch(i int, loss float64) {
	least := loss // GPUs that no later job can use lose their price
	for t, price := range p.price {
		spare := p.free[t]
		if i < len(p.items) {
			spare -= p.items[i].rest[t]
		}
		if spare > 0 {
			least += price * float64(spare)
		}
	}
	if least >= p.budget-packingRounding {
		return
	}
	if i == len(p.items) {
		p.budget, p.found = least, true
		p.best = append(p.best[:0], p.pick...)
		return
	}
	if p.nodes--; p.nodes < 0 {
		p.cut = true
		return
	}
	from := 0 // jobs of a group are equal, so their choices are in the order of the options
	if !p.items[i].first {
		from = p.pick[i-1]
	}
	if p.wide > 0 {
		state := uint64(0)
		for t, n := range p.free {
			state = state*uint64(p.size[t]+1) + uint64(n)
		}
		state = (uint64(i)*p.deep+uint64(from))*p.wide + state
		if before, ok := p.seen[state]; ok && before <= loss {
			return
		}
		p.seen[state] = loss
	}
	for choice := from; choice < len(p.items[i].options); choice++ {
		o := p.items[i].options[choice]
		if loss+o.key >= p.budget-packingRounding {
			break
		}
		p.pick[i] = choice
		if o.typ < 0 {
			p.branch(i+1, loss+o.key)
			continue
		}
		if n := p.gpus[o.group]; n <= p.free[o.typ] {
			p.free[o.typ] -= n
			p.branch(i+1, loss+o.key)
			p.free[o.typ] += n
		}
	}
}
