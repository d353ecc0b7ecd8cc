package hybrid

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/estimate"
)

// blockRanks is the number of ranks whose times are drawn in all scenarios before the times of the next ranks. Larger:
// the ranks do not stay in the cache of the CPU from one scenario to the next.
const blockRanks = 128

// sampler draws the times of all ranks in all scenarios, one block of ranks after the other. A number of a stream
// follows from its place, so each scenario has its own part of one stream: all scenarios could as well be drawn one
// after the other. The values that a rank has in all scenarios are computed once for each rank:
//
//	for s.nextBlock(nil) {
//		for i := range scenarios {
//			nows, offs := s.draw(i) // of the ranks in s.chosen
//		}
//	}
type sampler struct {
	ranks  []prospect
	common groups
	random [scenarios]draws
	shared [scenarios]drawnGroups
	values [][]estimate.Spread // by large type: the spreads that occur in the scenarios
	most   int                 // largest number of these
	// by class, from 1 on: the largest center in any scenario
	highest  []float64
	noisiest []int // by large type: place of the spread with the largest noise; -1: not yet known

	first  int // rank of the first element of block
	block  []prospect
	chosen []chosen // ranks of the block whose times are drawn, ascending
	left   uint64   // numbers of the ranks of the block after the last chosen one

	room       [blockRanks]chosen
	errors     [blockRanks]errors
	weights    []weights // by rank of the block and spread
	nows, offs [blockRanks]float64
}

// chosen is a rank of a block whose times are drawn.
type chosen struct {
	at   int    // place in the block
	left uint64 // numbers of the ranks between the rank chosen before and this one
}

// drawnGroups are what ranks have in common in one scenario.
type drawnGroups struct {
	curve  []float64 // by large type: error of the curve, in standard deviations
	center []float64 // by class, from 1 on: mean of the levels of its ranks relative to the type, log
	spread []int     // by large type: place in sampler.values
}

// errors are the standard errors of the times of a rank, in s.
type errors struct {
	now, best   float64 // effects of the level of the rank on the two times ([prospect.nowUnit])
	own, shared float64 // of the best share alone: of the rank, and of its type
	alone       bool    // the best share has errors of its own
	kind        int     // large type of the rank; 0: none
}

// weights are what [estimate.Level.Posterior] returns for a rank and one spread.
type weights struct {
	part, sigma float64 // of a rank of its class
	apart       float64 // sigma of a rank that is apart from its class
	shape       float64 // fraction of errors.own, of a rank of its class
}

const rarely = 0.001 // saves most draws of whether a rank is apart from its class

// newSampler returns a sampler. Callers draw more further numbers in each scenario, after those of all ranks.
func newSampler(ranks []prospect, common groups, more int) *sampler {
	s := &sampler{ranks: ranks, common: common, values: make([][]estimate.Spread, common.types+1)}
	count := uint64(common.types + len(common.classes) + more) // numbers of a scenario
	for r := range ranks {
		count += ranks[r].numbers()
	}
	s.highest = slices.Repeat([]float64{math.Inf(-1)}, len(common.classes)+1)
	s.noisiest = slices.Repeat([]int{-1}, common.types+1)
	for i := range s.random {
		s.random[i] = drawsFrom(uint64(i) * count)
		s.shared[i] = s.drawGroups(i, &s.random[i])
		for class, center := range s.shared[i].center {
			s.highest[class] = max(s.highest[class], center)
		}
	}
	s.weights = make([]weights, blockRanks*s.most)
	return s
}

// numbers returns how many numbers the rank draws in each scenario.
func (p *prospect) numbers() uint64 {
	n := uint64(1)
	if p.level.Class > 0 && p.level.Apart > rarely && !(p.level.Apart > 1-rarely) {
		n++
	}
	if p.bestError > p.nowError {
		n++
	}
	return n
}

// drawGroups draws the errors of a scenario that ranks have in common. Each scenario has another quantile of the
// spread, which is the same for all types: the causes of different levels, such as cooling, concern all types.
func (s *sampler) drawGroups(scenario int, random *draws) drawnGroups {
	const mix = 27 // odd, so that each quantile occurs once; other events follow the number of the scenario
	g := drawnGroups{make([]float64, s.common.types+1), make([]float64, len(s.common.classes)+1),
		make([]int, s.common.types+1)}
	for kind := 1; kind <= s.common.types; kind++ {
		g.curve[kind] = random.next()
		g.spread[kind] = s.place(kind, s.common.spreadOf(kind, mix*scenario%estimate.Spreads))
	}
	for i := range s.common.classes {
		c := &s.common.classes[i]
		mean, sigma := c.Center(s.values[c.Type][g.spread[c.Type]])
		g.center[i+1] = mean + sigma*random.next()
	}
	return g
}

// place returns the place of a spread in the values of a type.
func (s *sampler) place(kind int, spread estimate.Spread) int {
	for at, known := range s.values[kind] {
		if known == spread {
			return at
		}
	}
	s.values[kind] = append(s.values[kind], spread)
	s.most = max(s.most, len(s.values[kind]))
	return len(s.values[kind]) - 1
}

// nextBlock goes to the next ranks, and reports whether there are any. If matters is not nil, it chooses only ranks for
// which matters returns true: their place in the block, and upper bounds of their two times in all scenarios, in s.
func (s *sampler) nextBlock(matters func(at int, now, best float64) bool) bool {
	s.first += len(s.block)
	s.block = s.ranks[s.first:min(s.first+blockRanks, len(s.ranks))]
	s.chosen, s.left = s.room[:0], 0
	for j := range s.block {
		p, e := &s.block[j], &s.errors[j]
		*e = errors{now: p.nowUnit(), best: p.bestUnit(), alone: p.bestError > p.nowError}
		if e.alone {
			own := p.bestError*p.bestError - p.nowError*p.nowError
			if p.group > 0 {
				shared := min(p.shared*p.shared, own)
				e.shared = math.Sqrt(shared)
				own -= shared
			}
			e.own = math.Sqrt(own)
		}
		if p.level.Class > 0 {
			e.kind = s.common.classes[p.level.Class-1].Type
		}
		if matters != nil && !e.matters(p, j, s.roughly(p, e), matters) {
			s.left += p.numbers()
			continue
		}
		if p.level.Class > 0 {
			known := s.weights[j*s.most:]
			s.weigh(&p.level, e.kind, known)
			if matters != nil && !e.matters(p, j, s.exactly(p, e, known), matters) {
				s.left += p.numbers()
				continue
			}
		}
		s.chosen = append(s.chosen, chosen{j, s.left})
		s.left = 0
	}
	return len(s.block) > 0
}

// matters reports whether a rank matters whose level is at most high.
func (e *errors) matters(p *prospect, at int, high float64, matters func(at int, now, best float64) bool) bool {
	const exact = 1e-9 // more than the rounding errors
	now, best := p.now+e.now*high, p.best+e.best*high+(e.shared+e.own)*largest
	return matters(at, now+exact*(p.now+math.Abs(now)), best+exact*(p.best+math.Abs(best)))
}

// roughly returns an upper bound of the level of a rank in all scenarios, without the weights of its spreads: the part
// of a rank of its class is between 0 and 1, and its sigma is at most that of a rank apart from its class.
func (s *sampler) roughly(p *prospect, e *errors) float64 {
	if p.level.Class == 0 {
		return largest
	}
	values := s.values[e.kind]
	if s.noisiest[e.kind] < 0 {
		most := math.Inf(-1)
		for k, spread := range values {
			if _, sigma := p.level.Posterior(spread, true); !(sigma <= most) {
				s.noisiest[e.kind], most = k, sigma
			}
		}
	}
	center := s.highest[p.level.Class]
	_, sigma := p.level.Posterior(values[s.noisiest[e.kind]], true)
	return max(p.level.Mean(0, center), p.level.Mean(1, center)) + sigma*largest
}

// exactly is roughly with the weights of the spreads of the rank.
func (s *sampler) exactly(p *prospect, e *errors, known []weights) float64 {
	high, center := math.Inf(-1), s.highest[p.level.Class]
	for k := range s.values[e.kind] {
		w := &known[k]
		if !(p.level.Apart > 1-rarely) {
			high = max(high, p.level.Mean(w.part, center)+w.sigma*largest)
		}
		if p.level.Apart > rarely {
			high = max(high, p.level.Mean(1, center)+w.apart*largest)
		}
	}
	return high
}

// weigh writes what a level is with each spread of its type.
func (s *sampler) weigh(l *estimate.Level, kind int, out []weights) {
	for k, spread := range s.values[kind] {
		out[k].shape = spread.Shape()
		if !(l.Apart > 1-rarely) {
			out[k].part, out[k].sigma = l.Posterior(spread, false)
		}
		if l.Apart > rarely {
			_, out[k].apart = l.Posterior(spread, true)
		}
	}
}

// draw returns the times of the chosen ranks in a scenario: the time of the share in use, and the error of the
// time of the best share, in s. Both lists are valid until the next call. Both times of a rank have the error of its
// level in common, and ranks of one type have other errors in common.
func (s *sampler) draw(scenario int) (nows, offs []float64) {
	random, g := s.random[scenario], &s.shared[scenario]
	nows, offs = s.nows[:len(s.chosen)], s.offs[:len(s.chosen)]
	for i, c := range s.chosen {
		j := c.at
		p, e := &s.block[j], &s.errors[j]
		random.skip(c.left)
		level, own := random.next(), e.own
		if class := p.level.Class; class > 0 {
			w := &s.weights[j*s.most+g.spread[e.kind]]
			part, sigma, shape := w.part, w.sigma, w.shape
			if p.level.Apart > rarely && (p.level.Apart > 1-rarely || random.uniform() < p.level.Apart) {
				part, sigma, shape = 1, w.apart, 1
			}
			own *= shape
			level = p.level.Mean(part, g.center[class]) + sigma*level
		}
		nows[i] = p.now + e.now*level
		off := e.best * level
		if e.alone {
			if p.group > 0 {
				off += e.shared * g.curve[p.group]
			}
			off += own * random.next()
		}
		offs[i] = off
	}
	random.skip(s.left)
	s.random[scenario] = random
	return nows, offs
}

// longest returns the longest of some times and of the time so far.
func longest(so float64, times []float64) float64 {
	for _, t := range times {
		if !(t <= so) {
			so = max(so, t)
		}
	}
	return so
}
