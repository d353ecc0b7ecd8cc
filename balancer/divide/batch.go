package divide

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Batch is the batch that is divided among ranks.
type Batch struct {
	Total int // samples: of the global batch, or of a micro-batch of it
	// Limits are the largest numbers of samples that the ranks can hold. 0 excludes a rank; nil means no limits.
	Limits []int
	// Shares must be multiples of Unit, for example of the group size of batch normalisation; 0 and 1 allow any share.
	// If Total is not a multiple of Unit, the last rank with samples also gets the rest.
	Unit int

	Least []int // smallest share of each rank, if larger than Unit; nil: Unit
}

// Capacities returns a copy of the largest numbers of samples that the ranks can hold.
func (b Batch) Capacities(ranks int) []int {
	limits := slices.Repeat([]int{b.Total}, ranks)
	for r, n := range b.Limits {
		limits[r] = min(n, b.Total)
	}
	return limits
}

// Check returns an error if the ranks cannot hold the batch.
func (b Batch) Check(ranks int) error {
	_, err := b.units(ranks)
	return err
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
		return u,
			fmt.Errorf("got a batch of %d samples in units of %d, want at least 1 sample, and units of at least 0",
				b.Total, b.Unit)
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
	if b.Least != nil {
		u.floor = make([]int, ranks)
		for r := range u.floor {
			u.floor[r] = min(max(b.Least[r]/u.size, 1), u.limit[r])
		}
	}
	return u, u.check(b)
}

// check returns an error if the ranks cannot hold the batch. The error states the missing capacity and the capacity of
// each rank.
func (u units) check(b Batch) error {
	capacity, fed := 0, 0
	for _, n := range u.limit {
		capacity += n
		if n > 0 {
			fed++
		}
	}
	if u.last < 0 || capacity < u.total {
		return fmt.Errorf("%w: %d of %d samples do not fit: the ranks can hold %s", ErrInfeasible,
			b.Total-capacity*u.size-min(u.rest, b.Total), b.Total, holds(b.Limits))
	}
	floor := 0
	for r := range u.floor {
		floor += u.floor[r]
	}
	if floor > u.total {
		return fmt.Errorf("%w: %d samples in units of %d, want at least %d units", ErrInfeasible, b.Total, u.size,
			floor)
	}
	if u.total < fed {
		return fmt.Errorf("%w: %d samples in units of %d, want at least one unit for each of %d ranks", ErrInfeasible,
			b.Total, u.size, fed)
	}
	return nil
}

// holds returns a text such as "96, 64 and 0". Of a long list, the text contains only the first limits.
func holds(limits []int) string {
	const most = 16
	text := strings.Trim(fmt.Sprint(limits[:min(len(limits), most)]), "[]")
	text = strings.ReplaceAll(text, " ", ", ")
	if len(limits) > most {
		text += fmt.Sprintf(" … (%d ranks)", len(limits))
	}
	return text
}

// Divides reports whether shares are a division of the batch. If others is not nil, each rank that has samples in
// others must have samples in shares.
func (b Batch) Divides(shares, others []int) bool {
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

// fewest returns the smallest number of units of a rank.
func (u units) fewest(rank int) int {
	if u.floor == nil {
		return 1
	}
	return u.floor[rank]
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
