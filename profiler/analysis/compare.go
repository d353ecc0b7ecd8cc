package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/balancer/policies"
)

// baseline is the policy to which the other policies are compared.
const baseline = "none"

// soloPrefix is the prefix of scenarios in which a single rank runs alone.
const soloPrefix = "solo-"

// minSteadySteps is the number of steps after the warm-up that a comparison needs from each run: two blocks.
const minSteadySteps = 2 * blockSteps

// Options configures a comparison of runs.
type Options struct {
	WarmUpSteps int64   // number of steps to leave out at the start of each run; negative: see WarmUp
	Replicates  int     // number of bootstrap replicates, at least 100
	Confidence  float64 // confidence level of intervals, above 0 and below 1
	Seed        uint64  // seed of the bootstrap
}

// Check returns an error for invalid options.
func (o Options) Check() error {
	switch {
	case o.Replicates < 100 || o.Replicates > 1_000_000:
		return fmt.Errorf("replicates of the bootstrap: got %d, want 100 to 1000000", o.Replicates)
	case !(o.Confidence > 0 && o.Confidence < 1):
		return fmt.Errorf("confidence: got %g, want a number above 0 and below 1, as 0.95", o.Confidence)
	}
	return nil
}

// Study is the result of comparing the runs in a folder.
type Study struct {
	Options
	Root        string
	Comparisons []*Comparison
	Skipped     []Skipped // folders without a finished run, and runs that are too short
	Damaged     []string  // descriptions of unreadable parts of the compared runs, one sentence each
}

// Comparison contains runs whose settings are equal except for the policy and the seed.
type Comparison struct {
	ID                       string // unique name in the study, for files
	Model, Dataset, Scenario string
	Machine                  string
	Ranks                    int
	BatchSize                int64
	Devices                  []string
	Solo                     []Solo          // one entry per rank; empty if unknown
	Policies                 []*PolicyResult // the baseline comes first
	TargetLoss               float64         // lowest loss that every run reached; NaN if losses are unknown
	// LossSpread is the largest difference in loss between the first policy and another policy, at the same seed and
	// step. It is a fraction of the first policy's first loss. It is NaN if there is only one policy.
	LossSpread float64
	Notes      []string // remarks that are needed to interpret the results
}

// Solo is the throughput of a rank that runs alone.
type Solo struct {
	Scenario   string
	Throughput Estimate // samples/s
}

// PolicyResult contains the results of the runs of one policy.
type PolicyResult struct {
	Policy string
	Runs   []*Run
	Seeds  []string

	Throughput  Estimate // samples/s over all ranks
	Utilization Estimate // percent
	Efficiency  Estimate // throughput divided by the sum of the ranks' solo throughputs
	Imbalance   Estimate // 0…1
	Waiting     Estimate // fraction of the ranks' compute time, 0…1
	Oracle      Estimate // throughput as a fraction of the throughput with the best shares, 0…1
	Speedup     Estimate // relative to the baseline
	Ratios      map[string]Estimate

	Lost         map[string]float64 // mean lost time of a step by cause, s; empty if unknown
	Curve        []CurvePoint       // loss, mean over runs
	SecondsTo    []float64          // time to TargetLoss in s, one per run
	StepsTo      []int64
	replicates   []values
	efficiencies []float64
}

// Compare groups runs into comparisons and estimates their metrics.
func Compare(all Collection, options Options) (*Study, error) {
	if err := options.Check(); err != nil {
		return nil, err
	}
	study := &Study{Options: options, Root: all.Root, Skipped: slices.Clone(all.Skipped)}
	groups, solos := map[string][]*Run{}, map[string][]*Run{}
	for _, run := range all.Runs {
		if n := len(run.steady(options.WarmUpSteps)); n < minSteadySteps {
			study.Skipped = append(study.Skipped,
				Skipped{run.Dir, fmt.Sprintf("too short: %d steps after the warm-up of %d, want at least %d",
					n, WarmUp(run.Steps[len(run.Steps)-1].Iteration, options.WarmUpSteps), minSteadySteps)})
			continue
		}
		study.Damaged = append(study.Damaged, run.faults()...)
		if strings.HasPrefix(run.Scenario, soloPrefix) {
			key := run.Scenario + "\n" + fingerprint(run.comparable(soloKeys))
			solos[key] = append(solos[key], run)
			continue
		}
		key := run.Scenario + "\n" + fingerprint(run.comparable(ownKeys))
		groups[key] = append(groups[key], run)
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		study.Comparisons = append(study.Comparisons, options.compare(groups[key], solos))
	}
	study.nameComparisons()
	return study, nil
}

// faults describes damaged or missing records, with which the run is still compared.
func (r *Run) faults() []string {
	out := slices.Clone(r.Damaged)
	if r.Partial > 0 {
		out = append(out, fmt.Sprintf("%s: %d steps are not used, because a rank has no record of them", r.Dir,
			r.Partial))
	}
	if r.Pauses > 0 {
		out = append(out,
			fmt.Sprintf("%s: %d pauses between steps (evaluation, checkpoint, resume) do not count as training", r.Dir,
				r.Pauses))
	}
	return out
}

// nameComparisons gives each comparison a unique name. If two comparisons have the same description, their names state
// how they differ.
func (s *Study) nameComparisons() {
	slices.SortStableFunc(s.Comparisons, func(a, b *Comparison) int {
		return cmp.Compare(a.description(), b.description())
	})
	alike := map[string][]*Comparison{}
	for _, c := range s.Comparisons {
		alike[c.description()] = append(alike[c.description()], c)
	}
	for _, c := range s.Comparisons {
		same := alike[c.description()]
		c.ID = c.description()
		if len(same) == 1 {
			continue
		}
		c.ID += fmt.Sprintf("_%d", slices.Index(same, c)+1)
		var settings []map[string]string
		for _, other := range same {
			settings = append(settings, other.settings())
		}
		var own []string
		for _, key := range differences(settings) {
			own = append(own, fmt.Sprintf("%s = %s", key, c.settings()[key]))
		}
		c.Notes = append(
			[]string{
				fmt.Sprintf(
					"this is one of %d comparisons of this model, data set, scenario and batch; they differ in: %s",
					len(same), strings.Join(own, ", "))}, c.Notes...)
	}
}

func (c *Comparison) description() string {
	return fmt.Sprintf("%s_%s_%s_batch%d", c.Model, c.Dataset, c.Scenario, c.BatchSize)
}

func (c *Comparison) settings() map[string]string { return c.Policies[0].Runs[0].comparable(ownKeys) }

// compare computes one comparison.
func (o Options) compare(runs []*Run, solos map[string][]*Run) *Comparison {
	first := runs[0]
	c := &Comparison{Model: first.Model, Dataset: first.Dataset, Scenario: first.Scenario, Machine: first.Machine,
		Ranks: first.Ranks, BatchSize: first.BatchSize, Devices: first.Devices}
	alone := o.solo(c, first, solos)
	byPolicy := map[string][]*Run{}
	for _, run := range runs {
		byPolicy[run.Policy] = append(byPolicy[run.Policy], run)
	}
	for _, policy := range OrderPolicies(slices.Collect(maps.Keys(byPolicy))) {
		c.Policies = append(c.Policies, o.policy(first, policy, byPolicy[policy], c, alone))
	}
	c.speedups(o)
	c.converge()
	c.note(runs)
	return c
}

// OrderPolicies sorts names of policies: the baseline first, then in the order of policies.Names, then unknown
// names alphabetically.
func OrderPolicies(names []string) []string {
	known := policies.Names()
	rank := func(name string) int {
		if i := slices.Index(known, name); i >= 0 {
			return i
		}
		return len(known)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	return names
}

// solo sets c.Solo. It returns the replicates of the sum of all ranks' solo throughputs, or nil if a rank's
// throughput is missing.
func (o Options) solo(c *Comparison, run *Run, solos map[string][]*Run) []float64 {
	if len(run.Solo) == 0 {
		return nil
	}
	settings := fingerprint(run.comparable(soloKeys))
	sum := make([]float64, o.Replicates)
	found := map[string]Estimate{}
	for _, scenario := range run.Solo {
		runs := solos[scenario+"\n"+settings]
		if len(runs) == 0 {
			c.Solo = nil
			c.Notes = append(c.Notes, fmt.Sprintf("no run of %s with these settings: scaling efficiency is unknown",
				scenario))
			return nil
		}
		blocks := o.blocks(runs)
		drawn := column(replicate(blocks, o.Replicates, o.Seed, scenario+settings), throughput)
		if _, ok := found[scenario]; !ok {
			found[scenario] = percentile(mean(blocks)[throughput], drawn, o.Confidence)
		}
		c.Solo = append(c.Solo, Solo{scenario, found[scenario]})
		for i := range sum {
			sum[i] += drawn[i]
		}
	}
	return sum
}

func (o Options) blocks(runs []*Run) [][]block {
	blocks := make([][]block, len(runs))
	for i, run := range runs {
		blocks[i] = blocksOf(run.steady(o.WarmUpSteps))
	}
	return blocks
}

// policy estimates those values of a policy that do not depend on other policies. The parameter alone is the result of
// solo.
func (o Options) policy(like *Run, policy string, runs []*Run, c *Comparison, alone []float64) *PolicyResult {
	slices.SortFunc(runs, func(a, b *Run) int { return cmp.Compare(a.Dir, b.Dir) })
	p := &PolicyResult{Policy: policy, Runs: runs, Efficiency: noEstimate, Lost: map[string]float64{}}
	decisions := make([][]block, len(runs))
	for i, run := range runs {
		if !slices.Contains(p.Seeds, run.Seed) {
			p.Seeds = append(p.Seeds, run.Seed)
		}
		decisions[i] = blocksOfDecisions(run.steadyDecisions(o.WarmUpSteps))
	}
	blocks, stream := o.blocks(runs), policy+"\n"+like.Scenario+"\n"+fingerprint(like.comparable(ownKeys))
	p.replicates = replicate(blocks, o.Replicates, o.Seed, stream)
	values := mean(blocks)
	estimate := func(m metric) Estimate { return percentile(values[m], column(p.replicates, m), o.Confidence) }
	p.Throughput, p.Utilization, p.Imbalance, p.Waiting = estimate(throughput), estimate(utilization),
		estimate(imbalance), estimate(waiting)
	p.Oracle = percentile(mean(decisions)[oracle], column(replicate(decisions, o.Replicates, o.Seed, "oracle "+stream),
		oracle), o.Confidence)
	if alone != nil {
		total := 0.0
		for _, s := range c.Solo {
			total += s.Throughput.Value
		}
		p.efficiencies = ratio(column(p.replicates, throughput), alone)
		p.Efficiency = percentile(values[throughput]/total, p.efficiencies, o.Confidence)
	}
	p.lose(o)
	return p
}

func (r *Run) steadyDecisions(set int64) []Decision {
	steps := r.steady(set)
	return slices.DeleteFunc(slices.Clone(r.Decisions), func(d Decision) bool { return d.Step < steps[0].Iteration })
}

// lose sets p.Lost: for each cause, the mean lost time over those decisions of the balancer that state lost times.
func (p *PolicyResult) lose(o Options) {
	n := 0.0
	for _, run := range p.Runs {
		for _, d := range run.steadyDecisions(o.WarmUpSteps) {
			if len(d.Lost) > 0 {
				n++
			}
			for cause, seconds := range d.Lost {
				p.Lost[cause] += seconds
			}
		}
	}
	for cause := range p.Lost {
		p.Lost[cause] /= n
	}
}

// speedups compares each policy with the baseline.
func (c *Comparison) speedups(o Options) {
	base := c.Policies[0]
	for _, p := range c.Policies {
		p.Speedup, p.Ratios = noEstimate, map[string]Estimate{}
		if base.Policy != baseline {
			continue
		}
		over := func(m metric, above, below Estimate) Estimate {
			if p == base {
				return Estimate{1, 1, 1}
			}
			return percentile(above.Value/below.Value, ratio(column(p.replicates, m), column(base.replicates, m)),
				o.Confidence)
		}
		p.Speedup = over(throughput, p.Throughput, base.Throughput)
		p.Ratios["throughput"] = p.Speedup
		p.Ratios["utilization"] = over(utilization, p.Utilization, base.Utilization)
		p.Ratios["imbalance"] = over(imbalance, p.Imbalance, base.Imbalance)
		p.Ratios["efficiency"] = p.Speedup // the sum of solo throughputs is the same for all policies
	}
	if base.Policy != baseline {
		c.Notes = append(c.Notes, fmt.Sprintf("no run of policy %q: there are no speed-ups", baseline))
	}
}

// note adds the remarks that are needed to interpret the results.
func (c *Comparison) note(runs []*Run) {
	add := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(c.Notes, text) {
			c.Notes = append(c.Notes, text)
		}
	}
	var programs []string
	for _, run := range runs {
		for _, note := range run.Result.Notes {
			add("%s", note)
		}
		if !slices.Contains(programs, run.Result.Program) {
			programs = append(programs, run.Result.Program)
		}
	}
	if len(programs) > 1 {
		add("the runs were made by %d versions of the program: %s", len(programs), strings.Join(programs, "; "))
	}
	for _, p := range c.Policies {
		if profiles := p.values("profile.gpu_profiles"); len(profiles) > 1 {
			add("runs of %s had different hardware profiles: %q", p.Policy, profiles)
		}
		if len(p.Runs) == 1 {
			add(
				"a policy has only one run: its interval shows the variation of steps within that run, not between runs")
		}
	}
}

// values returns the different values of a setting in the runs of a policy.
func (p *PolicyResult) values(key string) []string {
	var all []string
	for _, run := range p.Runs {
		if v := run.Settings[key]; !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}
