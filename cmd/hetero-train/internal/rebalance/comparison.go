package rebalance

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
)

// Names of the candidates that are not policies.
const (
	ComparisonOracle = "oracle"
	ComparisonOff    = "off"
)

// LeastRounds is the minimum number of rounds of a comparison. The means in the results leave out the first third of
// the rounds.
const LeastRounds = 3

// comparison runs several policies in turns. It replaces the policy of the run. All ranks make the same decisions.
//
// The comparison first measures different divisions of the batch (splits) in stages, to find the oracle: the shares
// with the shortest step. It then runs rounds. In each round, every candidate divides the batch for one block of steps.
type comparison struct {
	flags   *session.ComparisonOptions
	run     *assembly.Run
	step    *balancer.Step    // latest step of the run; the balancer changes it before each call of split
	options *balancer.Options // options of the run's policy

	splits      [][]int    // splits of this stage that are not measured yet; a split has one share per rank
	stage       int        // number of stages begun
	center      []int      // best known shares, around which the splits of this stage vary
	measured    []measured // shares and times of all blocks
	oracle      []int      // shares with the shortest step; nil until all splits are measured
	candidates  []*candidate
	round, turn int
	finished    func() // called once, after the last round
	done        bool

	wanted []int // shares of the current block
	steps  int   // number of steps of the current block so far
	block  blockMeans
	times  [][]float64 // compute times of the steps of the current block, s, by rank and step
}

// candidate is a policy, or fixed shares, with the results of its blocks.
type candidate struct {
	name    string
	policy  balancer.Policy // nil if the shares are fixed
	shares  []int
	next    []int   // shares after this block, from the last decision in it; nil: the shares stay
	changes [][]int // shares after each change of shares
	blocks  []blockMeans
}

// blockMeans contains means over the steps of a block.
type blockMeans struct {
	Seconds   float64   `json:"step_seconds"`
	Median    float64   `json:"median_step_seconds"`
	Imbalance float64   `json:"imbalance"`
	Exposed   float64   `json:"communication_seconds"`
	Shares    []int     `json:"shares"`
	steps     []float64 // times of the steps, s
}

// newComparison begins a comparison whose first block has the shares of start. The balancer owns step and options.
func newComparison(a *assembly.Run, start []int, step *balancer.Step, o *balancer.Options) *comparison {
	c := &comparison{flags: a.Process.Opts.Comparison, run: a, step: step, options: o,
		times: make([][]float64, o.Ranks)}
	c.center = start
	c.splits = [][]int{c.center}
	c.begin(c.splits[0])
	return c
}

func (c *comparison) begin(shares []int) {
	c.wanted, c.steps, c.block = shares, 0, blockMeans{Shares: shares}
	for r := range c.times {
		c.times[r] = c.times[r][:0]
	}
}

// quiet reports whether profiling is off in the current block.
func (c *comparison) quiet() bool {
	return c != nil && c.turn < len(c.candidates) && c.candidates[c.turn].name == ComparisonOff
}

// split processes the step in c.step. It returns the shares of the next step, or nil if the shares stay.
func (c *comparison) split() []int {
	s := c.step
	if c.done {
		return nil
	}
	if s.Settling || !slices.Equal(s.Shares, c.wanted) { // the ranks do not use the wanted shares yet
		return c.wanted
	}
	if c.steps++; c.steps > 1 {
		c.take(s)
	}
	if c.steps < c.flags.Block {
		return nil
	}
	c.finish()
	return c.wanted
}

func (c *comparison) take(s *balancer.Step) {
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
	if p := c.candidates[c.turn]; p.policy != nil {
		s.Left = c.flags.Block*(c.flags.Rounds-c.round) - c.steps
		if d, due := p.policy.Observe(s); due {
			p.next = nil
			if d.Changed {
				p.next = slices.Clone(d.Next)
			}
		}
	}
}

// finish ends a block and begins the next block.
func (c *comparison) finish() {
	b := c.block
	n := float64(len(b.steps))
	slices.Sort(b.steps)
	b.Median = b.steps[len(b.steps)/2]
	b.Seconds, b.Imbalance, b.Exposed = b.Seconds/n, b.Imbalance/n, b.Exposed/n
	seen := measured{c.wanted, make([]float64, len(c.times))}
	for r, times := range c.times {
		if len(times) > 0 {
			slices.Sort(times)
			seen.Seconds[r] = times[len(times)/2]
		}
	}
	c.measured = append(c.measured, seen)
	if c.oracle == nil {
		c.nextSplit()
		return
	}
	p := c.candidates[c.turn]
	p.blocks = append(p.blocks, b)
	if p.next != nil {
		p.shares, p.next = p.next, nil
		p.changes = append(p.changes, p.shares)
	}
	if c.turn++; c.turn == len(c.candidates) {
		c.turn = 0
		if c.round++; c.round == c.flags.Rounds {
			c.done = true
			c.finished()
			return
		}
		// Rotate the order after each round, so that the rounds begin with different policies.
		c.candidates = append(c.candidates[1:], c.candidates[0])
	}
	c.begin(c.candidates[c.turn].shares)
}

// The curves are fitted to the times of splits. Each split raises or lowers the best known share of each rank by a
// fraction that shrinks from stage to stage.
const measureSplits = 10 // number of splits in each stage

var measureSpreads = [...]float64{0.2, 0.1, 0.05}

// nextSplit begins the next split. After the last split of the last stage, it begins the rounds.
func (c *comparison) nextSplit() {
	if c.splits = c.splits[1:]; len(c.splits) > 0 {
		c.begin(c.splits[0])
		return
	}
	if c.stage == len(measureSpreads) {
		c.compete()
		return
	}
	c.center = c.best(fitLines(c.measured, c.center, c.options.Total))
	spread := measureSpreads[c.stage]
	c.stage++
	for i := range measureSplits {
		weight := make([]float64, len(c.center))
		for r, n := range c.center {
			weight[r] = max(float64(n), 0.5)
			if (r>>(i/2%3))&1 == i&1 { // each split raises the shares of another set of ranks
				weight[r] *= 1 + spread
			} else {
				weight[r] *= 1 - spread
			}
		}
		if split, err := c.options.Divide(weight); err == nil {
			c.splits = append(c.splits, split)
		}
	}
	c.begin(c.splits[0])
}

// best returns the shares with the shortest step according to the given lines.
func (c *comparison) best(lines []divide.Curve) []int {
	best, err := divide.Solve(c.options.Batch, lines)
	if err != nil {
		panic(err) // unreachable: the policies were created with the same batch
	}
	return best
}

// compete computes the oracle, creates the candidates and begins the first block.
func (c *comparison) compete() {
	c.oracle = c.best(fitLines(c.measured, c.center, c.options.Total))
	o := *c.options
	o.Interval = c.flags.Block - 1 // one decision at the end of each block; hybrid also decides within the first block
	if o.Scores == nil {
		o.Scores = make([]float64, o.Ranks)
		equal := c.measured[0]
		for r, seconds := range equal.Seconds {
			if o.Scores[r] = 1; seconds > 0 {
				o.Scores[r] = float64(equal.Shares[r]) / seconds
			}
		}
	}
	for _, name := range c.flags.Policies {
		p := &candidate{name: name, shares: c.oracle}
		switch {
		case name == ComparisonOff:
			p.shares, _ = o.Divide(slices.Repeat([]float64{1}, o.Ranks))
		case name != ComparisonOracle:
			own := o
			maker, err := parts.PolicyMaker(c.run.Process.Opts.Env.Catalog, &c.run.Process.Cfg.Balance, name)
			if err == nil {
				if !maker.Static { // only static policies need scores from the measured blocks
					own.Scores = c.options.Scores
				}
				p.policy, err = maker.Make(own)
			}
			if err != nil {
				panic(err) // unreachable: a policy was created with the same options before
			}
			p.shares = p.policy.Start()
		}
		c.candidates = append(c.candidates, p)
	}
	c.begin(c.candidates[0].shares)
}
