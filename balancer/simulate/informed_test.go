package simulate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/simulate"
)

// informed is a policy that knows the noise, and the distribution from which [zigzag] or [spread] draws its curves.
// Tests compare policy hybrid with it.
// After each window, informed computes the probability of each kind of tiles for each rank. Under each kind, the logs
// of the fixed part and of the slope have a normal distribution (Laplace's approximation).
// After each of the first windows (trials), informed draws curves from this posterior and chooses the best shares for
// them (Thompson sampling). Later, it chooses the candidates with the shortest expected step.
type informed struct {
	options balancer.Options
	random  *rand.Rand
	noise   float64
	prior   prior
	alike   bool    // all ranks have the same tiles
	tiled   float64 // prior probability that a rank has tiles
	trials  int     // number of windows that use Thompson sampling; 0: none
	windows int
	steps   int
	seen    [][]sighting
	kinds   [][]kind // by rank
}

// prior contains the means and the variances of the logs of a curve's fixed part and slope.
type prior struct{ fixed, fixedVariance, slope, slopeVariance float64 }

// The priors approximate the values that [zigzag] and [spread] draw. Their logs are taken as normal, with the same
// means and about the same variances.
var (
	zigzagPrior = prior{fixed: -5.06, fixedVariance: 0.22, slope: -6.91, slopeVariance: 0.25}
	spreadPrior = prior{fixed: -6.3, fixedVariance: 1, slope: -6.91, slopeVariance: 1}
)

// sighting contains the measurements of one share.
type sighting struct{ samples, n, sum float64 } // n: number of measurements; sum: of the logs of their times

// kind is the posterior of a rank under the assumption of one kind of tiles.
type kind struct {
	period int     // samples per tile; 0: no tiles
	slower float64 // log of the factor on the times of shares that do not fill their tiles
	chance float64
	fixed  float64    // mean of the log of the fixed part, which is in s
	slope  float64    // mean of the log of the slope, which is in s per sample
	root   [3]float64 // Cholesky factor of the covariance of fixed part and slope, by rows
}

// kindsOf returns the kinds of tiles with their prior probabilities.
func kindsOf(tiled float64) []kind {
	const steps = 26
	kinds := []kind{{chance: 1 - tiled}}
	if tiled == 0 {
		return kinds
	}
	for _, period := range []int{4, 8, 16, 32} {
		for i := range steps {
			kinds = append(kinds, kind{period: period, slower: math.Log1p(0.1 + 0.5*(float64(i)+0.5)/steps),
				chance: tiled / (4 * steps)})
		}
	}
	return kinds
}

// Start implements balancer.Policy.
func (p *informed) Start() []int {
	shares, _ := p.options.Divide(slices.Repeat([]float64{1}, p.options.Ranks))
	return shares
}

// Observe implements balancer.Policy.
func (p *informed) Observe(s *balancer.Step) (*balancer.Decision, bool) {
	for r, seconds := range s.Own {
		samples := float64(s.Shares[r])
		at := slices.IndexFunc(p.seen[r], func(c sighting) bool { return c.samples == samples })
		if at < 0 {
			at = len(p.seen[r])
			p.seen[r] = append(p.seen[r], sighting{samples: samples})
		}
		p.seen[r][at].n++
		p.seen[r][at].sum += math.Log(seconds)
	}
	if p.steps++; p.steps%p.options.Interval != 0 {
		return nil, false
	}
	p.windows++
	p.learn()
	d := &balancer.Decision{Shares: s.Shares, Next: p.next(s.Shares)}
	d.Changed = !slices.Equal(d.Next, d.Shares)
	d.OfOracle.Value = math.NaN()
	return d, true
}

// learn computes the posterior of all ranks.
func (p *informed) learn() {
	logs := make([][]float64, p.options.Ranks)
	common := make([]float64, len(kindsOf(p.tiled)))
	for r := range p.kinds {
		p.kinds[r] = kindsOf(p.tiled)
		logs[r] = make([]float64, len(common))
		for i := range p.kinds[r] {
			k := &p.kinds[r][i]
			logs[r][i] = k.fit(p.seen[r], p.noise, p.prior)
			common[i] += logs[r][i]
		}
	}
	for r, kinds := range p.kinds {
		if p.alike {
			logs[r] = common
		}
		top, sum := slices.Max(logs[r]), 0.0
		for i := range kinds {
			kinds[i].chance *= math.Exp(logs[r][i] - top)
			sum += kinds[i].chance
		}
		for i := range kinds {
			kinds[i].chance /= sum
		}
	}
}

// fit computes the posterior under one kind of tiles, and returns the log of the evidence of this kind.
func (k *kind) fit(seen []sighting, noise float64, p prior) (evidence float64) {
	k.fixed, k.slope = p.fixed, p.slope
	var a, b, c float64 // second derivatives of the negative log posterior
	for range 12 {      // iterations of Gauss-Newton
		off, away := (k.fixed-p.fixed)/p.fixedVariance, (k.slope-p.slope)/p.slopeVariance
		a, b, c = 1/p.fixedVariance, 0, 1/p.slopeVariance
		evidence = -((k.fixed-p.fixed)*off + (k.slope-p.slope)*away) / 2
		for _, s := range seen {
			seconds := math.Exp(k.fixed) + math.Exp(k.slope)*s.samples
			part := math.Exp(k.fixed) / seconds
			precision := s.n / (noise * noise)
			e := math.Log(seconds) + k.factor(int(s.samples)) - s.sum/s.n
			a, b, c = a+precision*part*part, b+precision*part*(1-part), c+precision*(1-part)*(1-part)
			off, away = off+precision*part*e, away+precision*(1-part)*e
			evidence -= precision * e * e / 2
		}
		determinant := a*c - b*b
		first, second := (c*off-b*away)/determinant, (a*away-b*off)/determinant
		k.fixed, k.slope = k.fixed-min(max(first, -1), 1), k.slope-min(max(second, -1), 1)
		if math.Abs(first)+math.Abs(second) < 1e-4 {
			break
		}
	}
	determinant := a*c - b*b
	k.root[0] = math.Sqrt(c / determinant)
	k.root[1] = -b / determinant / k.root[0]
	k.root[2] = math.Sqrt(max(a/determinant-k.root[1]*k.root[1], 0))
	return evidence - math.Log(determinant)/2
}

// factor returns the log of the factor by which tiles lengthen the time of a share.
func (k *kind) factor(samples int) float64 {
	if k.period == 0 || samples%k.period == 0 {
		return 0
	}
	return k.slower
}

// draw returns a curve for each rank from the posterior.
func (p *informed) draw() []divide.Curve {
	curves := make([]divide.Curve, len(p.kinds))
	u := p.random.Float64()
	for r, kinds := range p.kinds {
		if r > 0 && !p.alike {
			u = p.random.Float64()
		}
		i := 0
		for left := u; i < len(kinds)-1 && left > kinds[i].chance; i++ {
			left -= kinds[i].chance
		}
		k := &kinds[i]
		x, y := p.random.NormFloat64(), p.random.NormFloat64()
		fixed, slope := math.Exp(k.fixed+k.root[0]*x), math.Exp(k.slope+k.root[1]*x+k.root[2]*y)
		for b := 1; b <= p.options.Total; b++ {
			curves[r] = append(curves[r],
				divide.Point{Samples: float64(b), Seconds: (fixed + slope*float64(b)) * math.Exp(k.factor(b))})
		}
	}
	return curves
}

// next returns the shares of the next window.
func (p *informed) next(shares []int) []int {
	if p.windows <= p.trials {
		best, _ := divide.Solve(p.options.Batch, p.draw())
		return best
	}
	worlds, candidates := make([][]divide.Curve, 150), [][]int{shares}
	for i := range worlds {
		worlds[i] = p.draw()
	}
	mean := make([]divide.Curve, p.options.Ranks)
	for r := range mean {
		mean[r] = slices.Clone(worlds[0][r])
		for b := range mean[r] {
			mean[r][b].Seconds = 0
			for _, world := range worlds {
				mean[r][b].Seconds += world[r][b].Seconds / float64(len(worlds))
			}
		}
	}
	for _, world := range append(worlds[:30:30], mean) {
		best, _ := divide.Solve(p.options.Batch, world)
		candidates = append(candidates, best)
	}
	var best []int
	shortest := math.Inf(1)
	for _, candidate := range candidates {
		sum := 0.0
		for _, world := range worlds {
			seconds, _ := divide.Slowest(world, candidate)
			sum += seconds
		}
		if sum < shortest {
			best, shortest = candidate, sum
		}
	}
	return best
}

// informedMaker makes an informed policy with the knowledge in p.
func informedMaker(seed uint64, p informed) balancer.Maker {
	return balancer.Maker{Name: "informed", New: func(known balancer.Options) (balancer.Policy, error) {
		made := p
		made.options, made.random = known, rand.New(rand.NewPCG(seed, 7))
		made.seen, made.kinds = make([][]sighting, known.Ranks), make([][]kind, known.Ranks)
		return &made, nil
	}}
}

// The test prints the figures of informed policies for docs/benchmarks/balancing.md. One informed policy knows that all
// ranks have tiles. At least as many of its runs as of hybrid's must reach 0.98 of the oracle's speed.
func TestInformedOnZigzags(t *testing.T) {
	onlyFull(t)
	const clusters = 400
	for _, noise := range []float64{0.05, 0.2} {
		for _, alike := range []bool{true, false} {
			atHybrid := 0 // number of runs of hybrid below 0.98 of the oracle
			for _, tiled := range []float64{0, 1, 0.13} {
				// tiled 0: policy hybrid. 0.13: the probability that hybrid assumes before any measurement.
				name := "hybrid"
				if tiled > 0 {
					name = fmt.Sprintf("informed, tiles with probability %.2f", tiled)
				}
				var shares, steps []float64
				for seed := range uint64(clusters) {
					o := zigzag(seed, alike, noise)
					if tiled > 0 {
						o.Maker = informedMaker(seed,
							informed{noise: noise, prior: zigzagPrior, alike: alike, tiled: tiled, trials: 16})
					}
					res := played(t, o)
					shares, steps = append(shares, lastQuarter(res)), append(steps, lost(res))
				}
				slices.Sort(shares)
				slices.Sort(steps)
				if low := below(shares, 0.98); tiled == 0 {
					atHybrid = low
				} else if tiled == 1 && low > atHybrid {
					t.Errorf(
						"noise %v, alike %v: got %d runs of the informed policy below 0.98, want at most hybrid's %d",
						noise, alike, low, atHybrid)
				}
				fmt.Printf("| %.0f %%, alike %v, %s | median %.4f, %.1f %% at 0.98 and above, worst %.4f, lost %.1f of 400 steps (median) |\n",
					100*noise, alike, name,
					shares[clusters/2], 100-100*float64(below(shares, 0.98))/clusters, shares[0], steps[clusters/2])
			}
		}
	}
}

// The informed policy for lines assumes no tiles, draws no curves, and decides after every step. In the first 100
// steps, it must lose at most as many steps as hybrid (median). It must lose at least 2.9 steps, the loss of the first
// step, which has equal shares.
func TestInformedOnLines(t *testing.T) {
	onlyFull(t)
	const clusters = 200
	steps := lostAtStart(t, clusters, func(seed uint64) simulate.Options {
		o := spread(seed)
		o.Interval, o.Maker = 1, informedMaker(seed, informed{noise: o.Noise, prior: spreadPrior})
		return o
	})
	if hybrids := lostAtStart(t, clusters, spread); steps[clusters/2] > hybrids[clusters/2] || steps[clusters/2] < 2.9 {
		t.Errorf("got a median of %.1f steps lost, want at least 2.9 and at most hybrid's %.1f", steps[clusters/2],
			hybrids[clusters/2])
	}
	fmt.Printf("| lines, informed, a decision after every step | median %.1f, 90th percentile %.1f steps lost of the first 100 |\n",
		steps[clusters/2], steps[clusters*9/10])
}
