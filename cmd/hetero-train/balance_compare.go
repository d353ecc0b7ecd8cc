package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/train"
)

const compareLong = `Compare balancing policies within one training run of several ranks.

The policies take turns in blocks of steps, each with the shares that it has come to and seeing its own blocks only, so that whatever else
changes on the machine meets all of them. "oracle" has the best fixed shares, from lines through the times that the ranks took for
several splits at the start; "off" has equal shares with neither profiling nor balancing. The first step of each block is left out.
A policy's share of the oracle is the oracle's time of a step over its own, summed over the later two thirds of the rounds; the interval is a
bootstrap over rounds (95 %).`

const compareExample = `  scripts/lab.sh --cpu 0.8,0.4,0.2,0.2 -- ./hetero-train balance compare --set model.name=simple_cnn --set data.dataset=synthetic_image --set data.batch_size=256`

// contestFlags are the flags of balance compare.
type contestFlags struct {
	policies []string
	block    int // steps
	rounds   int
}

// Contestants that are no policies.
const (
	contestOracle = "oracle"
	contestOff    = "off"
)

func newBalanceCompare(a *app) *cobra.Command {
	f := new(contestFlags)
	cmd := &cobra.Command{Use: "compare", Short: "Compare balancing policies within one run", Long: compareLong, Example: compareExample, Args: noArguments}
	all := append(balancer.Policies(), contestOracle)
	cmd.Flags().StringSliceVar(&f.policies, "policies", all, "policies that take turns, of "+strings.Join(append(all, contestOff), ", "))
	cmd.Flags().IntVar(&f.block, "block", 10, "steps of a turn")
	cmd.Flags().IntVar(&f.rounds, "rounds", 30, "turns of each")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		for _, s := range [][2]string{{"train.steps", fmt.Sprint(4 * f.block * (len(f.policies)*f.rounds + 40))}, {"train.resume", "none"}, {"train.eval_interval", "0"},
			{"checkpoint.interval_seconds", "0"}, {"checkpoint.interval_steps", "0"}, {"schedule.name", "constant"}, {"balance.curve_cache", "off"}} {
			a.overrides = append(a.overrides, config.Override{Origin: "balance compare", Key: s[0], Value: s[1]})
		}
		a.contest = f
		return a.train(cmd.Context(), nil)
	}
	return cmd
}

func (f *contestFlags) check() error {
	known := append(balancer.Policies(), contestOracle, contestOff)
	for i, p := range f.policies {
		if !slices.Contains(known, p) || slices.Contains(f.policies[:i], p) {
			return usageError("balance compare: --policies: got %q, want some of %s, each once", p, strings.Join(known, ", "))
		}
	}
	if len(f.policies) < 1 || f.block < 3 || f.rounds < 3 {
		return usageError("balance compare: got %d policies, --block %d, --rounds %d, want at least 1, 3 and 3", len(f.policies), f.block, f.rounds)
	}
	return nil
}

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

// The splits that the curves come from.
const (
	measureStages = 2
	measureSplits = 6 // of each stage
)

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
	if c.stage == measureStages {
		c.compete()
		return
	}
	center := c.best()
	spread := []float64{0.2, 0.07}[c.stage]
	c.stage++
	for i := range measureSplits {
		weight := make([]float64, len(center))
		for r, n := range center {
			weight[r] = max(float64(n), 0.5)
			if (r>>(i/2))&1 == i&1 { // ranks are up and down in other combinations each time
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

// interval is a ratio and its 95 % interval.
type interval struct {
	Ratio experiment.Number `json:"ratio"`
	Low   experiment.Number `json:"low"`
	High  experiment.Number `json:"high"`
}

// contestResult is what a contestant came to.
type contestResult struct {
	Policy        string       `json:"policy"`
	Shares        []int        `json:"shares"` // the last ones
	StepSeconds   float64      `json:"step_seconds"`
	ShareOfOracle interval     `json:"share_of_oracle"`
	ByMedians     interval     `json:"share_of_oracle_by_medians"` // the same of blocks' median steps, which a slow step here and there does not move
	Imbalance     float64      `json:"imbalance"`
	Exposed       float64      `json:"communication_seconds"`
	Rebalances    int          `json:"rebalances"`
	Settled       int          `json:"rebalances_until_steady"` // until its shares stay within 1 % of the oracle's time on the measured lines; -1: never
	Blocks        []blockMeans `json:"blocks"`                  // in the order of rounds
}

func (c *contest) results() []contestResult {
	unknown := interval{experiment.Number(nan), experiment.Number(nan), experiment.Number(nan)}
	steady := c.flags.rounds / 3
	oracle := slices.IndexFunc(c.contestants, func(p *contestant) bool { return p.name == contestOracle })
	var out []contestResult
	for _, name := range c.flags.policies {
		p := c.contestants[slices.IndexFunc(c.contestants, func(p *contestant) bool { return p.name == name })]
		r := contestResult{Policy: name, Shares: p.shares, Rebalances: len(p.changes), Settled: c.settled(p), ShareOfOracle: unknown, ByMedians: unknown, Blocks: p.blocks}
		own, medians := secondsOf(p.blocks[steady:])
		for _, b := range p.blocks[steady:] {
			n := float64(len(own))
			r.StepSeconds, r.Imbalance, r.Exposed = r.StepSeconds+b.Seconds/n, r.Imbalance+b.Imbalance/n, r.Exposed+b.Exposed/n
		}
		if oracle >= 0 {
			best, bestMedians := secondsOf(c.contestants[oracle].blocks[steady:])
			r.ShareOfOracle, r.ByMedians = ratioInterval(best, own), ratioInterval(bestMedians, medians)
		}
		out = append(out, r)
	}
	return out
}

func secondsOf(blocks []blockMeans) (means, medians []float64) {
	for _, b := range blocks {
		means, medians = append(means, b.Seconds), append(medians, b.Median)
	}
	return means, medians
}

// settled counts the changes until shares stay good.
func (c *contest) settled(p *contestant) int {
	best, _ := balancer.Slowest(c.lines, c.oracle)
	good := func(shares []int) bool {
		t, _ := balancer.Slowest(c.lines, shares)
		return best >= 0.99*t
	}
	for i := len(p.changes) - 1; i >= 0; i-- {
		if !good(p.changes[i]) {
			if i == len(p.changes)-1 {
				return -1
			}
			return i + 2
		}
	}
	if len(p.changes) == 0 && !good(p.shares) {
		return -1
	}
	return min(len(p.changes), 1)
}

// report prints the table and keeps all figures with the run.
func (c *contest) report(j *job) error {
	if !c.done {
		return fmt.Errorf("balance compare: the run ended in round %d of %d", c.round+1, c.flags.rounds)
	}
	results := c.results()
	out := j.opts.env.stdout
	best, slowest := balancer.Slowest(c.lines, c.oracle)
	fmt.Fprintf(out, "%d ranks, batch %d, blocks of %d steps, %d rounds, of which the later %d count; measured oracle: shares %v, %.1f ms of compute, slowest rank %d\n",
		len(c.points), j.cfg.Data.BatchSize, c.flags.block, c.flags.rounds, c.flags.rounds-c.flags.rounds/3, c.oracle, 1e3*best, slowest)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "policy\tms a step\timg/s\tof the oracle\t95 %\tby medians\t95 %\timbalance\tcomm ms\trebalances\tto steady\tshares\t\n")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%.1f\t%.0f\t%s\t%s to %s\t%s\t%s to %s\t%.1f %%\t%.2f\t%d\t%d\t%v\t\n", r.Policy, 1e3*r.StepSeconds, float64(j.cfg.Data.BatchSize)/r.StepSeconds,
			figure("%.4f", r.ShareOfOracle.Ratio), figure("%.4f", r.ShareOfOracle.Low), figure("%.4f", r.ShareOfOracle.High),
			figure("%.4f", r.ByMedians.Ratio), figure("%.4f", r.ByMedians.Low), figure("%.4f", r.ByMedians.High), 100*r.Imbalance, 1e3*r.Exposed, r.Rebalances, r.Settled, r.Shares)
	}
	w.Flush()
	text, err := json.MarshalIndent(map[string]any{"ranks": len(c.points), "batch_size": j.cfg.Data.BatchSize, "block": c.flags.block, "rounds": c.flags.rounds,
		"oracle": c.oracle, "points": c.points, "results": results}, "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(j.run.LogDir(), "balance_compare.json"), append(text, '\n'), 0o644)
	}
	return withCode(exitIO, err)
}

// quiet reports whether profiling is off in this step.
func (j *job) quiet() bool { return j.balancing != nil && j.balancing.contest.quiet() }

// muted is an observer that sleeps while profiling is off.
type muted struct {
	train.Observer
	quiet func() bool
}

// StepDone implements train.Observer.
func (m muted) StepDone(r *train.StepRecord) {
	if !m.quiet() {
		m.Observer.StepDone(r)
	}
}
