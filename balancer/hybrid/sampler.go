package hybrid

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/estimate"
)

// blockRanks is the number of ranks whose times are drawn in all scenarios before the times of the next ranks. Larger:
// the ranks do not stay in the cache of the CPU from one scenario to the next.
const blockRanks = 128

// sampler draws the times of all ranks in all scenarios, one block of ranks after the other. A number of a stream
// follows from its place, so each scenario has its own part of one stream: all scenarios could as well be drawn one
// after the other. The values that a rank has in all scenarios are computed once for each rank:
//
//	for s.nextBlock() {
//		for i := range scenarios {
//			nows, offs := s.draw(i) // of the ranks of s.block
//		}
//	}
type sampler struct {
	ranks  []prospect
	common groups
	random [scenarios]draws
	shared [scenarios]drawnGroups
	values [][]estimate.Spread // by large type: the spreads that occur in the scenarios
	most   int                 // largest number of these

	first      int // rank of the first element of block
	block      []prospect
	errors     [blockRanks]errors
	weights    []weights // by rank of the block and spread
	nows, offs [blockRanks]float64
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
}

const rarely = 0.001 // saves most draws of whether a rank is apart from its class

// newSampler returns a sampler. Callers draw more further numbers in each scenario, after those of all ranks.
func newSampler(ranks []prospect, common groups, more int) *sampler {
	s := &sampler{ranks: ranks, common: common, values: make([][]estimate.Spread, common.types+1)}
	count := uint64(common.types + len(common.classes) + more) // numbers of a scenario
	for r := range ranks {
		p := &ranks[r]
		count++
		if p.level.Class > 0 && p.level.Apart > rarely && !(p.level.Apart > 1-rarely) {
			count++
		}
		if p.bestError > p.nowError {
			count++
		}
	}
	for i := range s.random {
		s.random[i] = drawsFrom(uint64(i) * count)
		s.shared[i] = s.drawGroups(i, &s.random[i])
	}
	s.weights = make([]weights, blockRanks*s.most)
	return s
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

// nextBlock goes to the next ranks, and reports whether there are any.
func (s *sampler) nextBlock() bool {
	s.first += len(s.block)
	s.block = s.ranks[s.first:min(s.first+blockRanks, len(s.ranks))]
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
			s.weigh(&p.level, e.kind, s.weights[j*s.most:])
		}
	}
	return len(s.block) > 0
}

// weigh writes what a level is with each spread of its type.
func (s *sampler) weigh(l *estimate.Level, kind int, out []weights) {
	for k, spread := range s.values[kind] {
		if !(l.Apart > 1-rarely) {
			out[k].part, out[k].sigma = l.Posterior(spread, false)
		}
		if l.Apart > rarely {
			_, out[k].apart = l.Posterior(spread, true)
		}
	}
}

// draw returns the times of the ranks of the block in a scenario: the time of the share in use, and the error of the
// time of the best share, in s. Both lists are valid until the next call. Both times of a rank have the error of its
// level in common, and ranks of one type have other errors in common.
func (s *sampler) draw(scenario int) (nows, offs []float64) {
	random, g := s.random[scenario], &s.shared[scenario]
	nows, offs = s.nows[:len(s.block)], s.offs[:len(s.block)]
	for j := range nows {
		p, e := &s.block[j], &s.errors[j]
		level := random.next()
		if class := p.level.Class; class > 0 {
			w := &s.weights[j*s.most+g.spread[e.kind]]
			part, sigma := w.part, w.sigma
			if p.level.Apart > rarely && (p.level.Apart > 1-rarely || random.uniform() < p.level.Apart) {
				part, sigma = 1, w.apart
			}
			level = p.level.Mean(part, g.center[class]) + sigma*level
		}
		nows[j] = p.now + e.now*level
		off := e.best * level
		if e.alone {
			if p.group > 0 {
				off += e.shared * g.curve[p.group]
			}
			off += e.own * random.next()
		}
		offs[j] = off
	}
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
