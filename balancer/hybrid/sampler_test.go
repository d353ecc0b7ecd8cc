package hybrid

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/estimate"
)

// typedProspects returns the prospects of ranks of two large types and of ranks without such a type. Their levels and
// classes come from a model. Each probability that a rank is apart from its class occurs.
func typedProspects(t *testing.T) ([]prospect, groups) {
	const kind = 90 // ranks
	random := rand.New(rand.NewPCG(21, 4))
	types := make([]string, 2*kind+20)
	for r := range types {
		types[r] = strconv.Itoa(r)
		if r < 2*kind {
			types[r] = "type " + strconv.Itoa(r%2)
		}
	}
	ranks := len(types)
	limits := slices.Repeat([]int{256}, ranks)
	m := estimate.New(estimate.Options{Limits: limits, Active: slices.Repeat([]bool{true}, ranks), Interval: 10,
		Types: types})
	shares, levels := make([]int, ranks), make([]float64, ranks)
	for r := range levels {
		levels[r] = (1 + float64(r%2)) * math.Exp(0.005*random.NormFloat64())
	}
	for window := range 6 {
		seconds := make([][]float64, ranks)
		for r := range shares {
			shares[r] = []int{32, 64, 16, 48}[(window+r/2%2)%4]
			for range 10 {
				noise := math.Exp(0.02 * random.NormFloat64())
				seconds[r] = append(seconds[r], levels[r]*(0.01+0.001*float64(shares[r]))*noise)
			}
		}
		m.Learn(&estimate.Window{Shares: shares, Seconds: seconds})
		m.Fit(shares, true)
	}
	curves := m.Mean()
	list := make([]prospect, ranks)
	typed, own, next := 0, 0, 0
	for r := range list {
		best := shares[r]
		switch r % 3 {
		case 1:
			best += 1 + r%7
		case 2:
			best -= 1 + r%5
		}
		if r%19 == 0 {
			best = 0
		}
		p := prospectOf(&curves[r], shares[r], best)
		p.nowError = m.Sigma(r, shares[r])
		if p.bestError = p.nowError; best > 0 && best != shares[r] {
			p.bestError = m.Sigma(r, best)
			var shared float64
			shared, p.group = m.Shared(r, best)
			p.shared = shared * p.best
		}
		p.room = float64(limits[r] - best)
		if p.level = m.Level(r); p.level.Class > 0 {
			typed++
			p.level.Apart = []float64{0, 0.0005, 0.5, 0.9995, 1}[r%5]
			p.next = curves[r].At(float64(best + 1))
			if best == shares[r] {
				p.nextClass = m.ClassWith(r, []int{16, 32, 48, 64}[r%4])
			}
			if p.nextClass > 0 {
				next++
			}
		}
		if p.bestError > p.nowError && p.group > 0 && p.shared > 0 {
			own++
		}
		list[r] = p
	}
	spreads := map[estimate.Spread]bool{}
	for quantile := range estimate.Spreads {
		spreads[m.Spread(1, quantile)] = true
	}
	if len(spreads) < 3 {
		t.Fatalf("got %d spreads, want several", len(spreads))
	}
	if typed < kind || own < 10 || next < 10 || len(m.Classes()) < 3 {
		t.Fatalf("got %d ranks of large types, %d with errors in common, %d with a next class, and %d classes", typed,
			own, next, len(m.Classes()))
	}
	return list, newGroups(list, m.Classes(), m.Spread)
}

// oneScenario draws the times of all ranks in one scenario after the other, from one stream: the reference of sampler.
func oneScenario(scenario int, ranks []prospect, common groups, stream *draws) (nows, offs, center []float64) {
	spread, curve := make([]estimate.Spread, common.types+1), make([]float64, common.types+1)
	for kind := 1; kind <= common.types; kind++ {
		curve[kind] = stream.next()
		spread[kind] = common.spreadOf(kind, 27*scenario%estimate.Spreads)
	}
	center = make([]float64, len(common.classes)+1)
	for i := range common.classes {
		mean, sigma := common.classes[i].Center(spread[common.classes[i].Type])
		center[i+1] = mean + sigma*stream.next()
	}
	for _, p := range ranks {
		level := stream.next()
		nowUnit, bestUnit, shape := p.nowError, min(p.nowError, p.bestError), 1.0
		if class := p.level.Class; class > 0 {
			const rarely = 0.001
			apart := p.level.Apart > 1-rarely || p.level.Apart > rarely && stream.uniform() < p.level.Apart
			part, sigma := p.level.Posterior(spread[common.classes[class-1].Type], apart)
			level = p.level.Mean(part, center[class]) + sigma*level
			if nowUnit, bestUnit = p.now, p.best; !apart {
				shape = spread[common.classes[class-1].Type].Shape()
			}
		}
		nows = append(nows, p.now+nowUnit*level)
		off := bestUnit * level
		if p.bestError > p.nowError {
			own := p.bestError*p.bestError - p.nowError*p.nowError
			if p.group > 0 {
				shared := min(p.shared*p.shared, own)
				off += math.Sqrt(shared) * curve[p.group]
				own -= shared
			}
			off += math.Sqrt(own) * shape * stream.next()
		}
		offs = append(offs, off)
	}
	return nows, offs, center
}

// Ranks of large types have errors in common, and draw other numbers. The blocks must give each rank the numbers of the
// reference, in each scenario, and must leave each stream where the reference leaves it.
func TestBlocksOfTypedRanksDrawOneStream(t *testing.T) {
	ranks, common := typedProspects(t)
	for _, more := range []int{0, 1} {
		s := newSampler(ranks, common, more)
		nows, offs := make([][]float64, scenarios), make([][]float64, scenarios)
		for s.nextBlock(nil) {
			for i := range scenarios {
				now, off := s.draw(i)
				nows[i], offs[i] = append(nows[i], now...), append(offs[i], off...)
			}
		}
		stream := draws(0)
		for i := range scenarios {
			wantNows, wantOffs, center := oneScenario(i, ranks, common, &stream)
			if !slices.Equal(nows[i], wantNows) || !slices.Equal(offs[i], wantOffs) ||
				!slices.Equal(s.shared[i].center, center) {
				t.Fatalf("scenario %d: got other times than one scenario after the other", i)
			}
			if s.random[i] != stream {
				t.Fatalf("scenario %d: the stream ends elsewhere", i)
			}
			for range more {
				stream.next()
			}
		}
	}
	var values []float64
	stream := draws(0)
	for i := range scenarios {
		nows, offs, _ := oneScenario(i, ranks, common, &stream)
		for r := range offs {
			offs[r] += ranks[r].best
		}
		values = append(values, slices.Max(nows)-2*max(slices.Max(offs), 0))
	}
	slices.Sort(values)
	low, high := interval(ranks, common, func(now, then float64) float64 { return now - 2*then })
	if low != values[tail] || high != values[scenarios-1-tail] {
		t.Errorf("interval: got %v to %v, want %v to %v", low, high, values[tail], values[scenarios-1-tail])
	}
}

// Ranks that are left out must not change the numbers of the others, and no time may exceed the bound that decides
// which ranks are left out.
func TestRanksThatDoNotMatterAreLeftOut(t *testing.T) {
	ranks, common := typedProspects(t)
	s, reference := newSampler(ranks, common, 1), newSampler(ranks, common, 1)
	now, best := make([]float64, len(ranks)), make([]float64, len(ranks)) // bounds
	matters := func(at int, highNow, highBest float64) bool {
		r := s.first + at
		now[r], best[r] = highNow, highBest
		return r%3 > 0 && r < 190
	}
	above, near := 0, 0
	for s.nextBlock(matters) && reference.nextBlock(nil) {
		for i := range scenarios {
			nows, offs := s.draw(i)
			wantNows, wantOffs := reference.draw(i)
			for k, c := range s.chosen {
				if nows[k] != wantNows[c.at] || offs[k] != wantOffs[c.at] {
					t.Fatalf("scenario %d, rank %d: got %v and %v s, want %v and %v", i, s.first+c.at, nows[k], offs[k],
						wantNows[c.at], wantOffs[c.at])
				}
			}
			for j := range wantNows {
				r := s.first + j
				if wantNows[j] > now[r] || ranks[r].best+wantOffs[j] > best[r] {
					above++
				}
				if wantNows[j] > ranks[r].now+0.5*(now[r]-ranks[r].now) {
					near++
				}
			}
			if s.random[i] != reference.random[i] {
				t.Fatalf("scenario %d: the stream ends elsewhere", i)
			}
		}
	}
	if above > 0 || near < 100 {
		t.Errorf("got %d times above their bounds, want none; and %d times near them, want many", above, near)
	}
}

// The share of the oracle with large types follows from moves of samples in each scenario.
func TestOracleOfTypedRanksMovesSamplesInEachScenario(t *testing.T) {
	ranks, common := typedProspects(t)
	m := newMoves(ranks, common, 1)
	if !m.many() {
		t.Fatal("there is no large type")
	}
	parts, below := make([]float64, scenarios), 0
	stream := draws(0)
	for i := range parts {
		nows, offs, center := oneScenario(i, ranks, common, &stream)
		stream.next() // of the tile
		m.draw(ranks, center)
		m.times = make([]float64, len(m.ranks))
		least := 0.0
		for r, p := range ranks {
			if p.best > 0 {
				least = max(least, p.best+offs[r]-m.give[r])
				m.times[m.slots[r]-1] = p.best + offs[r]
			}
		}
		slowest := max(slices.Max(nows), 0)
		fit := func(seconds float64) bool { return seconds >= least && m.fit(seconds) }
		low, high := 0.9*slowest, slowest
		if fit(slowest * (1 - 1e-6)) {
			if below++; fit(low) {
				low = 0
			}
			for high-low > 1e-6*slowest {
				if middle := (low + high) / 2; fit(middle) {
					high = middle
				} else {
					low = middle
				}
			}
		}
		parts[i] = min(max(high/slowest, 0), 1)
	}
	slices.Sort(parts)
	want := balancer.Fraction{Value: (parts[scenarios/2-1] + parts[scenarios/2]) / 2, Low: parts[tail],
		High: parts[scenarios-1-tail]}
	if below < scenarios/2 || want.Low == want.High {
		t.Fatalf("samples move in %d scenarios, and the values are %+v: want different values", below, want)
	}
	if got := ofOracle(ranks, common, nil, 1, 0, 1); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
