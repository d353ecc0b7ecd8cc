package divide

import (
	"container/heap"
	"fmt"
	"math"
)

// Spent returns the energy of a step in J, or its cost if busy and idle are prices instead of watts:
//
//	sum over r of busy[r] t_r(b_r) + idle[r] (T - t_r(b_r)),   T = max over r of t_r(b_r)
func Spent(curves []Curve, shares []int, busy, idle []float64) float64 {
	whole, _ := Slowest(curves, shares)
	sum := 0.0
	for r, c := range curves {
		t := c.At(float64(shares[r]))
		sum += busy[r]*t + idle[r]*(whole-t)
	}
	return sum
}

// Cheapest finds the shares with the least energy or cost of a step. The step may be longer than the shortest step by
// at most the fraction slowdown. Rank r draws busy[r] while it computes and idle[r] while it waits.
//
// For each of several bounds on the step time, Cheapest gives one unit after another to the rank where the unit costs
// least. This is exact for convex curves, and close to the optimum for others. Successive bounds differ by a hundredth
// of the slowdown.
func Cheapest(b Batch, curves []Curve, busy, idle []float64, slowdown float64) ([]int, error) {
	if err := checkPowers(len(curves), busy, idle, slowdown); err != nil {
		return nil, fmt.Errorf("divide %d samples among %d ranks: %w", b.Total, len(curves), err)
	}
	fastest, err := Solve(b, curves)
	if err != nil {
		return nil, err
	}
	u, err := b.units(len(curves))
	if err != nil {
		return nil, fmt.Errorf("divide %d samples among %d ranks: %w", b.Total, len(curves), err)
	}
	v := u.valleys(curves)
	shortest, _ := Slowest(curves, fastest)
	best, least := fastest, Spent(curves, fastest, busy, idle)
	const bounds = 100
	for i := range bounds + 1 {
		bound := shortest * (1 + slowdown*float64(i)/bounds)
		shares := v.greedy(busy, idle, bound)
		if shares == nil {
			continue
		}
		if spent := Spent(curves, shares, busy, idle); spent < least {
			best, least = shares, spent
		}
	}
	return best, nil
}

func checkPowers(ranks int, busy, idle []float64, slowdown float64) error {
	if len(busy) != ranks || len(idle) != ranks {
		return fmt.Errorf("got %d busy and %d idle values, want %d of each", len(busy), len(idle), ranks)
	}
	for r := range busy {
		if !(busy[r] >= 0 && idle[r] >= 0) || math.IsInf(busy[r]+idle[r], 1) {
			return fmt.Errorf(
				"rank %d: got a busy power of %v and an idle power of %v, want finite numbers of at least 0", r,
				busy[r], idle[r])
		}
	}
	if !(slowdown >= 0) || math.IsInf(slowdown, 1) {
		return fmt.Errorf("slowdown: got %v, want a finite number of at least 0", slowdown)
	}
	return nil
}

// greedy gives each unit to the rank where it costs least within a bound on the time. It returns nil if the units do
// not fit.
func (v *valleys) greedy(busy, idle []float64, bound float64) []int {
	n, sum := v.least(bound)
	var queue offers
	left := v.total - sum
	for r := range v.rising {
		if v.limit[r] == 0 {
			continue
		}
		o := offer{rank: r, most: v.most(r, &v.rising[r], bound), price: func(units int) float64 {
			return (busy[r] - idle[r]) * v.seconds(r, units)
		}}
		if o.next(n[r]) {
			queue = append(queue, o)
		}
	}
	heap.Init(&queue)
	for left > 0 && len(queue) > 0 {
		o := &queue[0]
		n[o.rank]++
		left--
		if o.next(n[o.rank]) {
			heap.Fix(&queue, 0)
		} else {
			heap.Pop(&queue)
		}
	}
	if left != 0 {
		return nil
	}
	shares := v.shares(n)
	if t, _ := Slowest(v.curves, shares); t > bound*(1+1e-12) {
		return nil
	}
	return shares
}

// offer is the cost of one more unit on a rank.
type offer struct {
	rank, most int
	price      func(units int) float64
	costs      float64
}

// next computes the cost of the unit after n. It returns false if the rank can take no more units.
func (o *offer) next(n int) bool {
	if n >= o.most {
		return false
	}
	o.costs = o.price(n+1) - o.price(n)
	return true
}

type offers []offer

func (o offers) Len() int { return len(o) }
func (o offers) Less(i, j int) bool {
	if o[i].costs != o[j].costs {
		return o[i].costs < o[j].costs
	}
	return o[i].rank < o[j].rank
}
func (o offers) Swap(i, j int) { o[i], o[j] = o[j], o[i] }
func (o *offers) Push(x any)   { *o = append(*o, x.(offer)) }
func (o *offers) Pop() any {
	last := (*o)[len(*o)-1]
	*o = (*o)[:len(*o)-1]
	return last
}
