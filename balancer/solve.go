package balancer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Batch is the batch that is divided among ranks.
type Batch struct {
	Total int // samples: of the global batch, or of a micro-batch of it
	// Limits are the largest numbers of samples that the ranks can hold; 0 excludes a rank, nil means no limits.
	Limits []int
	// Unit is a number of which shares must be multiples, such as the group size of batch normalisation; 0 and 1 allow
	// any share. If Total is not a multiple of Unit, the last rank with samples also gets the rest.
	Unit int

	least []int // smallest share of each rank, if larger than Unit; nil: Unit
}

// limits returns a copy of the largest numbers of samples that the ranks can hold.
func (b Batch) limits(ranks int) []int {
	limits := slices.Repeat([]int{b.Total}, ranks)
	for r, n := range b.Limits {
		limits[r] = min(n, b.Total)
	}
	return limits
}

// units is a batch counted in units. The solvers divide units.
type units struct {
	total int
	size  int   // samples
	rest  int   // samples beyond whole units, which belong to rank last
	last  int   // rank
	limit []int // largest number of units, by rank; 0 excludes a rank
	floor []int // smallest number of units, by rank; nil: one each
}

func (b Batch) units(ranks int) (units, error) {
	u := units{size: max(b.Unit, 1), last: -1, limit: make([]int, ranks)}
	if ranks < 1 {
		return u, errors.New("no ranks")
	}
	if b.Limits != nil && len(b.Limits) != ranks {
		return u, fmt.Errorf("got %d limits, want %d", len(b.Limits), ranks)
	}
	if b.Total < 1 || b.Unit < 0 {
		return u, fmt.Errorf("got a batch of %d samples in units of %d, want at least 1 sample, and units of at least 0", b.Total, b.Unit)
	}
	u.total, u.rest = b.Total/u.size, b.Total%u.size
	for r := range u.limit {
		u.limit[r] = u.total
		if b.Limits != nil {
			if b.Limits[r] < 0 {
				return u, fmt.Errorf("limit of rank %d: got %d, want 0 or more", r, b.Limits[r])
			}
			u.limit[r] = min(b.Limits[r]/u.size, u.total)
		}
		if u.limit[r] > 0 {
			u.last = r
		}
	}
	if u.last >= 0 && b.Limits != nil {
		u.limit[u.last] = min((b.Limits[u.last]-u.rest)/u.size, u.total)
	}
	if b.least != nil {
		u.floor = make([]int, ranks)
		for r := range u.floor {
			u.floor[r] = min(max(b.least[r]/u.size, 1), u.limit[r])
		}
	}
	return u, u.check(b)
}

// check returns an error for a batch that the ranks cannot hold. The error states the missing capacity and the capacity
// of each rank.
func (u units) check(b Batch) error {
	capacity, fed := 0, 0
	for _, n := range u.limit {
		capacity += n
		if n > 0 {
			fed++
		}
	}
	if u.last < 0 || capacity < u.total {
		return fmt.Errorf("%w: %d of %d samples do not fit: the ranks can hold %s", ErrInfeasible, b.Total-capacity*u.size-min(u.rest, b.Total), b.Total, holds(b.Limits))
	}
	floor := 0
	for r := range u.floor {
		floor += u.floor[r]
	}
	if floor > u.total {
		return fmt.Errorf("%w: %d samples in units of %d, want at least %d units", ErrInfeasible, b.Total, u.size, floor)
	}
	if u.total < fed {
		return fmt.Errorf("%w: %d samples in units of %d, want at least one unit for each of %d ranks", ErrInfeasible, b.Total, u.size, fed)
	}
	return nil
}

// holds returns a text such as "96, 64 and 0", with the first limits of a long list.
func holds(limits []int) string {
	const most = 16
	text := strings.Trim(fmt.Sprint(limits[:min(len(limits), most)]), "[]")
	text = strings.ReplaceAll(text, " ", ", ")
	if len(limits) > most {
		text += fmt.Sprintf(" … (%d ranks)", len(limits))
	}
	return text
}

// divides reports whether shares are a division of the batch. If others is not nil, each rank that has samples in
// others must have samples in shares.
func (b Batch) divides(shares, others []int) bool {
	sum, last := 0, 0
	for r, n := range shares {
		if n < 0 || b.Limits != nil && n > b.Limits[r] || n == 0 && others != nil && others[r] > 0 {
			return false
		}
		if sum += n; n > 0 {
			last = r
		}
	}
	size := max(b.Unit, 1)
	for r, n := range shares {
		if r == last {
			n -= b.Total % size
		}
		if n%size != 0 {
			return false
		}
	}
	return sum == b.Total
}

// samples returns the number of samples of n units on a rank.
func (u units) samples(rank, n int) int {
	if n *= u.size; rank == u.last {
		n += u.rest
	}
	return n
}

func (u units) shares(n []int) []int {
	out := make([]int, len(n))
	for r := range n {
		out[r] = u.samples(r, n[r])
	}
	return out
}

// Divide is [Split] for a batch: shares in proportion to speed.
func (b Batch) Divide(speed []float64) ([]int, error) {
	u, err := b.units(len(speed))
	if err != nil {
		return nil, fmt.Errorf("divide %d samples among %d ranks: %w", b.Total, len(speed), err)
	}
	n, err := Split(u.total, speed, u.limit)
	if err != nil {
		return nil, err
	}
	return u.shares(n), nil
}

// Slowest is the time of the rank that takes longest for its share.
func Slowest(curves []Curve, shares []int) (seconds float64, rank int) {
	for r, c := range curves {
		if t := c.At(float64(shares[r])); r == 0 || t > seconds {
			seconds, rank = t, r
		}
	}
	return seconds, rank
}

// Solve finds the shares with the shortest time of the slowest rank:
//
//	min over integer shares b, sum b = Total, 1 <= b[r] <= Limits[r], of max over r of curves[r](b[r])
//
// The step also contains exposed communication. If the slowest rank takes longer, exposed communication falls by at
// most the same time. The shares with the shortest time of the slowest rank therefore also have the shortest step.
//
// It is exact. For curves that rise, or fall first and then rise, it takes about 64 * ranks * log(points) operations.
// Curves that fall again take longer, because Solve then sorts the times of all shares. If several shares are equally
// fast on rising curves, Solve chooses the shares with the shortest times of all other ranks, then the shares in
// proportion, and then gives more to lower ranks.
func Solve(b Batch, curves []Curve) ([]int, error) {
	u, err := b.units(len(curves))
	if err != nil {
		return nil, fmt.Errorf("divide %d samples among %d ranks: %w", b.Total, len(curves), err)
	}
	rise, once := true, true
	for r, c := range curves {
		if err := c.Check(); err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		if !c.Rises() {
			rise, once = false, once && c.turnsOnce()
		}
	}
	if rise {
		return u.shares(u.fill(curves)), nil
	}
	above := make([]Curve, len(curves))
	for r, c := range curves {
		above[r] = c.smoothed()
	}
	v := u.valleys(above)
	n := v.solve()
	if !once {
		n = u.jagged(curves, n)
	}
	return u.shares(n), nil
}

// fill finds the shortest time in which the ranks together can compute all units. It searches over all floats until two
// neighbouring floats remain: within the lower time, the units do not fit; within the higher time, they fit. It skips
// ranks that finish the same number of units within both times.
func (u units) fill(curves []Curve) []int {
	few, many := make([]int, len(curves)), make([]int, len(curves)) // units that each finishes within low, within high
	open, settled := make([]int, 0, len(curves)), 0                 // ranks that finish more units within high than within low; units of the other ranks
	fed := 0
	for r, c := range curves {
		if u.limit[r] == 0 {
			continue
		}
		few[r], many[r] = u.most(r, c, 0), u.limit[r]
		fed += few[r]
		if few[r] < many[r] {
			open = append(open, r)
		} else {
			settled += few[r]
		}
	}
	low, high := uint64(0), math.Float64bits(math.Inf(1))
	if fed >= u.total { // the units fit even in the lower bound of the time
		high, many = 0, few
		few = make([]int, len(curves))
		for r := range few {
			few[r] = min(many[r], u.fewest(r))
		}
	}
	got := make([]int, len(open))
	for low+1 < high { // positive floats are in the order of their bits
		mid := low + (high-low)/2
		sum, side := settled, few
		for i, r := range open {
			got[i] = u.most(r, curves[r], math.Float64frombits(mid))
			sum += got[i]
		}
		if sum >= u.total {
			high, side = mid, many
		} else {
			low = mid
		}
		rest := open[:0]
		for i, r := range open {
			if side[r] = got[i]; few[r] < many[r] {
				rest = append(rest, r)
			} else {
				settled += few[r]
			}
		}
		open = rest
	}
	return u.even(few, many)
}

// even returns few plus the missing units. Only ranks that take exactly the longer time have room, so even divides the
// missing units among them.
func (u units) even(few, many []int) []int {
	n, left := slices.Clone(few), u.total
	var ranks, spare []int
	var room []float64
	for r := range n {
		left -= n[r]
		if many[r] > n[r] {
			ranks, spare, room = append(ranks, r), append(spare, many[r]-n[r]), append(room, float64(many[r]-n[r]))
		}
	}
	for i, more := range proportionally(left, room, spare) {
		n[ranks[i]] += more
	}
	return n
}

// proportionally divides total by weight within limits. It rounds down and then gives out the rest in order.
func proportionally(total int, weight []float64, limit []int) []int {
	out, sum := make([]int, len(weight)), 0.0
	for _, w := range weight {
		sum += w
	}
	left := total
	for i, w := range weight {
		out[i] = min(int(float64(total)*(w/sum)), limit[i], left)
		left -= out[i]
	}
	for i := range out {
		more := min(left, limit[i]-out[i])
		out[i] += more
		left -= more
	}
	return out
}

// fewest returns the smallest number of units of a rank.
func (u units) fewest(rank int) int {
	if u.floor == nil {
		return 1
	}
	return u.floor[rank]
}

// most returns the number of units that a rank finishes within seconds, but at least fewest, because every rank that
// may have samples gets some.
func (u units) most(rank int, c Curve, seconds float64) int {
	samples := c.most(seconds, u.samples(rank, u.limit[rank]))
	if rank == u.last {
		samples -= u.rest
	}
	return max(samples/u.size, u.fewest(rank))
}
