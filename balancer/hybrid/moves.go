package hybrid

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// movedRanks is the number of ranks of a large cluster whose samples move in a scenario. Larger: the times of the best
// shares are more exact, and a decision takes longer.
const movedRanks = 1024

// moves finds the shortest step of a scenario for clusters with a large type: samples move in units from the ranks that
// are slower than expected to ranks with free memory. Many ranks of one type reach a time with the same share. A step
// can then only get shorter if all of them give a unit, so divisible samples would promise a gain that no division has.
type moves struct {
	ranks  []int              // whose samples move
	unit   float64            // samples
	slots  []int              // by rank: 1 + its place in the other lists; 0: its samples do not move
	all    []float64          // by scenario and place: times of these ranks with their best shares, s
	times  []float64          // of all: those of the current scenario
	perSec []float64          // units that a rank takes in one more second; 0: it has no samples
	first  []float64          // time that the first further unit of a rank takes beyond its slope in the scenario, s
	room   []float64          // units that a rank can take
	give   []float64          // by rank, of all ranks: time of the units that it can give, s
	least  [scenarios]float64 // time of the slowest rank with a single unit, s
}

// newMoves returns moves that hold no rank if no rank has a large type.
func newMoves(ranks []prospect, common groups, unit float64) (m moves) {
	if common.types == 0 {
		return m
	}
	n := min(len(ranks), movedRanks)
	m.unit, m.ranks = unit, make([]int, n)
	m.slots, m.all, m.perSec = make([]int, len(ranks)), make([]float64, scenarios*n), make([]float64, n)
	m.first, m.room, m.give = make([]float64, n), make([]float64, n), make([]float64, len(ranks))
	for r := range ranks {
		if p := &ranks[r]; p.best > 0 {
			m.give[r] = (math.Floor(p.samples/unit) - 1) * p.slope * unit
		}
	}
	for i := range n {
		r := i
		if n < len(ranks) {
			r = stat.Sample(i, len(ranks))
		}
		m.ranks[i] = r
		if p := &ranks[r]; p.best > 0 && m.slots[r] == 0 {
			m.slots[r], m.perSec[i] = i+1, 1/(p.slope*unit)
			m.room[i] = math.Floor(p.room / unit)
		}
	}
	return m
}

func (m *moves) many() bool { return m.slots != nil }

// draw sets what the first further unit of each rank takes in a scenario. It may begin a tile. If other ranks of the
// type have this share in use, they tell its time better than the curve. center are the means of the levels of the
// classes in the scenario.
func (m *moves) draw(ranks []prospect, center []float64) {
	for i, r := range m.ranks {
		p := &ranks[r]
		switch slope := p.slope * m.unit; {
		case p.best == 0:
		case p.nextClass > 0:
			m.first[i] = p.next*(1+center[p.nextClass]) - p.best*(1+center[p.level.Class]) - slope
		case p.level.Class > 0:
			m.first[i] = max(p.next-p.best-slope, 0)
		}
	}
}

// set sets the times of the best shares of the chosen ranks of a block in a scenario. offs are the errors of these
// times, in s.
func (m *moves) set(scenario int, drawn *sampler, offs []float64) {
	least, times := m.least[scenario], m.all[scenario*len(m.ranks):]
	give, slots := m.give[drawn.first:], m.slots[drawn.first:]
	for i, off := range offs {
		j := drawn.chosen[i].at
		p := &drawn.block[j]
		if p.best == 0 {
			continue
		}
		seconds := p.best + off
		if t := seconds - give[j]; !(t <= least) {
			least = max(least, t)
		}
		if at := slots[j]; at > 0 {
			times[at-1] = seconds
		}
	}
	m.least[scenario] = least
}

// shortest returns the shortest time of a step of at most slowest in a scenario, in s.
func (m *moves) shortest(scenario int, slowest float64, ranks []prospect, center []float64) float64 {
	m.draw(ranks, center)
	n, least := len(m.ranks), m.least[scenario]
	m.times = m.all[scenario*n : (scenario+1)*n]
	fit := func(seconds float64) bool { return !(seconds < least) && m.fit(seconds) }
	const exact = 1e-6 // of the time
	low, high := 0.9*slowest, slowest
	if !fit(slowest * (1 - exact)) {
		return slowest
	}
	if fit(low) {
		low = 0
	}
	for high-low > exact*slowest {
		if middle := (low + high) / 2; fit(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// fit reports whether the ranks can finish all units within a time, in s. Each rank keeps at least one unit, as in each
// division, so [moves.least] is a lower bound of this time.
func (m *moves) fit(seconds float64) bool {
	units := 0.0 // that the ranks can take, minus those that they must give
	for i, t := range m.times {
		left := seconds - t
		if left > 0 {
			left = max(left-m.first[i], 0)
		}
		units += min(math.Floor(left*m.perSec[i]), m.room[i])
	}
	return units >= 0
}
