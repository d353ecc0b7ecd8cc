package divide

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
)

// ErrInfeasible means that no shares meet the conditions: the limits sum to less than the global batch, or there are
// fewer samples than ranks that need samples.
var ErrInfeasible = errors.New("no feasible split")

// Split divides total samples among ranks in proportion to speed.
//
//	total     samples of the global batch
//	speed[i]  samples per second of rank i, finite and > 0; only ratios matter
//	limit[i]  largest number of samples that rank i can hold; 0 excludes the rank; nil means no limits
//
// The shares sum to total exactly, and a rank with a limit above 0 gets at least 1. A rank whose proportional share
// exceeds its limit gets its limit. A rank whose proportional share is below 1 gets 1. The other ranks divide the rest
// in proportion. Shares are rounded down, and the leftover samples go to the ranks with the largest remainders; ties go
// to the lower rank. The arithmetic is exact, so every machine computes the same shares.
//
// Split returns ErrInfeasible if the limits together hold fewer than total, or if total is less than the number of
// ranks with a limit above 0.
func Split(total int, speed []float64, limit []int) ([]int, error) {
	if limit == nil {
		limit = slices.Repeat([]int{max(total, 0)}, len(speed))
	}
	if err := check(total, speed, limit); err != nil {
		return nil, fmt.Errorf("split %d samples among %d ranks: %w", total, len(speed), err)
	}
	d := division{weight: integerWeights(speed), limit: limit, share: make([]int, len(speed)), rest: total}
	for i := range speed {
		if limit[i] > 0 {
			d.free = append(d.free, i)
		}
	}
	for d.settleOutOfBounds() {
	}
	d.roundToRemainders()
	return d.share, nil
}

func check(total int, speed []float64, limit []int) error {
	if len(speed) == 0 {
		return errors.New("no ranks")
	}
	if len(limit) != len(speed) {
		return fmt.Errorf("got %d limits, want %d", len(limit), len(speed))
	}
	capacity, active := 0, 0
	for i, s := range speed {
		if !(s > 0) || math.IsInf(s, 1) {
			return fmt.Errorf("speed of rank %d: got %v, want a finite number above 0", i, s)
		}
		if limit[i] < 0 {
			return fmt.Errorf("limit of rank %d: got %d, want 0 or more", i, limit[i])
		}
		if limit[i] > 0 {
			active++
		}
		capacity += min(limit[i], math.MaxInt-capacity)
	}
	if total < active {
		return fmt.Errorf("%w: %d samples, want at least one for each of %d ranks", ErrInfeasible, total, active)
	}
	if capacity < total {
		return fmt.Errorf("%w: the ranks' limits sum to %d samples, want at least %d (the batch)", ErrInfeasible,
			capacity, total)
	}
	return nil
}

// integerWeights returns integers with exactly the ratios of the speeds. A float64 is an integer times a power of two,
// so the smallest of these powers is a common unit.
func integerWeights(speed []float64) []*big.Int {
	const mantissaBits = 53
	least := math.MaxInt
	for _, s := range speed {
		_, exp := math.Frexp(s)
		least = min(least, exp)
	}
	weights := make([]*big.Int, len(speed))
	for i, s := range speed {
		frac, exp := math.Frexp(s)
		w := big.NewInt(int64(math.Ldexp(frac, mantissaBits)))
		weights[i] = w.Lsh(w, uint(exp-least))
	}
	return weights
}

// division is a split in progress. The ranks listed in field free will divide the remaining rest samples in proportion
// to weight. The shares of all other ranks are final.
type division struct {
	weight []*big.Int
	limit  []int
	share  []int
	free   []int // ranks, ascending
	rest   int
}

// settleOutOfBounds fixes the shares of ranks whose proportional share lies outside [1, limit] and reports whether
// it fixed any.
//
// Let q[i] be the proportional shares of the free ranks. Moving them into bounds adds samples to ranks below 1, and
// takes samples from ranks above their limit. If more samples are added than taken, the other ranks lose samples, so
// every rank at its lower bound stays there. If more samples are taken, every rank at its limit stays there. Only these
// ranks are fixed, so the result does not depend on the order of ranks.
func (d *division) settleOutOfBounds() bool {
	weights := d.freeWeight()
	change := new(big.Int) // samples added minus samples taken, times weights
	var below, above []int
	for _, i := range d.free {
		q := d.proportional(i) // times weights
		low, high := weights, new(big.Int).Mul(big.NewInt(int64(d.limit[i])), weights)
		switch {
		case q.Cmp(low) < 0:
			below = append(below, i)
			change.Add(change, new(big.Int).Sub(low, q))
		case q.Cmp(high) > 0:
			above = append(above, i)
			change.Add(change, new(big.Int).Sub(high, q))
		}
	}
	if change.Sign() >= 0 {
		for _, i := range below {
			d.settle(i, 1)
		}
	}
	if change.Sign() <= 0 {
		for _, i := range above {
			d.settle(i, d.limit[i])
		}
	}
	d.free = slices.DeleteFunc(d.free, func(r int) bool { return d.share[r] > 0 })
	return len(below)+len(above) > 0
}

// settle fixes the share of a free rank, which is at least 1.
func (d *division) settle(rank, share int) {
	d.share[rank] = share
	d.rest -= share
}

// roundToRemainders gives every free rank its proportional share, rounded down. The leftover samples, fewer than the
// free ranks, go to the largest remainders.
func (d *division) roundToRemainders() {
	if len(d.free) == 0 {
		return
	}
	weights := d.freeWeight()
	whole, _ := weights.Float64()
	list := make([]remainder, len(d.free))
	left := d.rest
	for at, i := range d.free {
		floor, rem := new(big.Int).QuoRem(d.proportional(i), weights, new(big.Int))
		d.share[i] = int(floor.Int64())
		about, _ := rem.Float64()
		if about /= whole; math.IsNaN(about) { // larger than all floats
			about = 0
		}
		list[at] = remainder{i, about, rem}
		left -= d.share[i]
	}
	slices.SortFunc(list, remainder.compare)
	for _, r := range list[:left] {
		d.share[r.rank]++
	}
}

// remainder is the part of a sample by which the proportional share of a rank exceeds its share.
type remainder struct {
	rank  int
	about float64  // with a rounding error, samples; 0 for all ranks if it is unknown
	exact *big.Int // times the weight of all free ranks
}

// compare puts the larger remainder first; ties go to the lower rank. Most remainders of many ranks differ by more than
// their rounding errors.
func (r remainder) compare(other remainder) int {
	const exact = 1e-12
	if off := r.about - other.about; off > exact {
		return -1
	} else if off < -exact {
		return 1
	}
	return cmp.Or(other.exact.Cmp(r.exact), cmp.Compare(r.rank, other.rank))
}

// proportional returns rank i's exact share of rest, times the weight of all free ranks.
func (d *division) proportional(i int) *big.Int {
	return new(big.Int).Mul(big.NewInt(int64(d.rest)), d.weight[i])
}

func (d *division) freeWeight() *big.Int {
	sum := new(big.Int)
	for _, i := range d.free {
		sum.Add(sum, d.weight[i])
	}
	return sum
}
