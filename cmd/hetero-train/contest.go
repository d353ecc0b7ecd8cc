package main

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
)

// contest lets policies take turns. It stands in for the policy of a run, on every rank alike.
type contest struct {
	flags     *contestFlags
	balancing *balancing

	splits      [][]int            // still to be measured
	stage       int                // of the measuring
	points      [][]balancer.Point // by rank: a share and its time, one a block
	lines       []balancer.Curve
	oracle      []int
	contestants []*contestant
	round, turn int
	done        bool

	wanted []int // shares of the block
	steps  int   // of it, with these shares
	block  blockMeans
	times  [][]float64 // by rank, of the block: s
}

// contestant is a policy and how its blocks went.
type contestant struct {
	name    string
	policy  balancer.Policy // nil: shares are fixed
	shares  []int
	changes [][]int // shares that it has changed to
	blocks  []blockMeans
}

// blockMeans are means over the steps of a block.
type blockMeans struct {
	Seconds   float64   `json:"step_seconds"`
	Median    float64   `json:"median_step_seconds"`
	Imbalance float64   `json:"imbalance"`
	Exposed   float64   `json:"communication_seconds"`
	Shares    []int     `json:"shares"`
	steps     []float64 // s
}

func newContest(f *contestFlags, b *balancing) *contest {
	ranks := len(b.known)
	c := &contest{flags: f, balancing: b, points: make([][]balancer.Point, ranks), times: make([][]float64, ranks)}
	c.splits = [][]int{b.policy.Start()}
	c.begin(c.splits[0])
	return c
}

func (c *contest) begin(shares []int) {
	c.wanted, c.steps, c.block = shares, 0, blockMeans{Shares: shares}
	for r := range c.times {
		c.times[r] = c.times[r][:0]
	}
}

// quiet reports whether profiling is off in this block.
func (c *contest) quiet() bool {
	return c != nil && c.turn < len(c.contestants) && c.contestants[c.turn].name == contestOff
}

// split takes in a step, which balancing.step describes, and returns the shares of the next one.
func (c *contest) split() []int {
	s := &c.balancing.step
	if c.done {
		return nil
	}
	if s.Settling || !slices.Equal(s.Shares, c.wanted) { // on the way there
		return c.wanted
	}
	if c.steps++; c.steps > 1 {
		c.take(s)
	}
	if c.steps < c.flags.block {
		return nil
	}
	c.finish()
	return c.wanted
}

func (c *contest) take(s *balancer.Step) {
	b := &c.block
	b.steps = append(b.steps, s.Seconds)
	b.Seconds += s.Seconds
	b.Exposed += s.Exposed
	least, most := math.Inf(1), 0.0
	for r := range s.Own {
		if s.Shares[r] == 0 {
			continue
		}
		least, most = min(least, s.Own[r]), max(most, s.Own[r])
		c.times[r] = append(c.times[r], s.Own[r]+s.Update[r])
	}
	b.Imbalance += (most - least) / most
	if c.oracle == nil {
		return
	}
	if p := c.contestants[c.turn]; p.policy != nil {
		if d, due := p.policy.Observe(s); due && d.Changed {
			p.shares = slices.Clone(d.Next)
			p.changes = append(p.changes, p.shares)
		}
	}
}

// finish ends a block and begins the next one.
func (c *contest) finish() {
	b := c.block
	n := float64(len(b.steps))
	slices.Sort(b.steps)
	b.Median = b.steps[len(b.steps)/2]
	b.Seconds, b.Imbalance, b.Exposed = b.Seconds/n, b.Imbalance/n, b.Exposed/n
	if c.oracle == nil {
		c.measured()
		return
	}
	p := c.contestants[c.turn]
	p.blocks = append(p.blocks, b)
	if c.turn++; c.turn == len(c.contestants) {
		c.turn = 0
		if c.round++; c.round == c.flags.rounds {
			c.done = true
			return
		}
		// Another one first each round, so that nobody always follows the same.
		c.contestants = append(c.contestants[1:], c.contestants[0])
	}
	c.begin(c.contestants[c.turn].shares)
}

// The splits that the curves come from: around the best ones so far, each rank up or down by a spread, which shrinks from stage to stage.
const measureSplits = 10 // of each stage

var measureSpreads = [...]float64{0.2, 0.1, 0.05}

// measured takes over what a split took, and goes on to the next one.
func (c *contest) measured() {
	for r, times := range c.times {
		if len(times) > 0 {
			slices.Sort(times)
			c.points[r] = append(c.points[r], balancer.Point{Samples: float64(c.wanted[r]), Seconds: times[len(times)/2]})
		}
	}
	if c.splits = c.splits[1:]; len(c.splits) > 0 {
		c.begin(c.splits[0])
		return
	}
	if c.stage == len(measureSpreads) {
		c.compete()
		return
	}
	center := c.best()
	spread := measureSpreads[c.stage]
	c.stage++
	for i := range measureSplits {
		weight := make([]float64, len(center))
		for r, n := range center {
			weight[r] = max(float64(n), 0.5)
			if (r>>(i/2%3))&1 == i&1 { // ranks are up and down in other combinations each time
				weight[r] *= 1 + spread
			} else {
				weight[r] *= 1 - spread
			}
		}
		if split, err := c.balancing.options.Divide(weight); err == nil {
			c.splits = append(c.splits, split)
		}
	}
	c.begin(c.splits[0])
}

// best is the best shares on lines through what was measured.
func (c *contest) best() []int {
	o := &c.balancing.options
	c.lines = make([]balancer.Curve, len(c.points))
	for r, points := range c.points {
		c.lines[r] = line(points, o.Total)
	}
	best, err := balancer.Solve(o.Batch, c.lines)
	if err != nil {
		panic(err) // policies were made with the same batch
	}
	return best
}

// line is the least-squares line through the points at shares like the last one, or, of a single share, that through nothing in no time.
func line(points []balancer.Point, total int) balancer.Curve {
	const alike = 0.4     // log of the ratio of shares
	if len(points) == 0 { // a rank that can hold nothing
		return balancer.Curve{{Samples: 1, Seconds: 0}}
	}
	last := points[len(points)-1].Samples
	points = slices.DeleteFunc(slices.Clone(points), func(p balancer.Point) bool { return math.Abs(math.Log(p.Samples/last)) > alike })
	n, mx, my := float64(len(points)), 0.0, 0.0
	for _, p := range points {
		mx, my = mx+p.Samples/n, my+p.Seconds/n
	}
	sxy, sxx := 0.0, 0.0
	for _, p := range points {
		sxy, sxx = sxy+(p.Samples-mx)*(p.Seconds-my), sxx+(p.Samples-mx)*(p.Samples-mx)
	}
	slope := my / mx
	if sxx > 0 && sxy > 0 {
		slope = sxy / sxx
	}
	at := func(b float64) float64 { return max(my+slope*(b-mx), 1e-6) }
	return balancer.Curve{{Samples: 1, Seconds: at(1)}, {Samples: float64(max(total, 2)), Seconds: at(float64(max(total, 2)))}}
}

// compete makes the contestants, once the curves are measured.
func (c *contest) compete() {
	c.oracle = c.best()
	o := c.balancing.options
	o.Interval = c.flags.block - 1 // a decision at the end of each block
	if o.Scores == nil {
		o.Scores = make([]float64, o.Ranks)
		for r, points := range c.points { // of the equal split
			if o.Scores[r] = 1; len(points) > 0 {
				o.Scores[r] = points[0].Samples / points[0].Seconds
			}
		}
	}
	for _, name := range c.flags.policies {
		p := &contestant{name: name, shares: c.oracle}
		switch {
		case name == contestOff:
			p.shares, _ = o.Divide(slices.Repeat([]float64{1}, o.Ranks))
		case name != contestOracle:
			own := o
			if name == "hybrid" || name == "dynamic" {
				own.Scores = c.balancing.options.Scores // blind, but for a profile
			}
			var err error
			if p.policy, err = balancer.New(name, own); err != nil {
				panic(err) // one was made with the same options
			}
			p.shares = p.policy.Start()
		}
		c.contestants = append(c.contestants, p)
	}
	c.begin(c.contestants[0].shares)
}
