package program

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/train"
)

const compareLong = `Compare balancing policies within one training run of several ranks.

The policies take turns in blocks of steps, each with the shares that it has come to and seeing its own blocks only, so that whatever else
changes on the machine meets all of them. "oracle" has the best fixed shares, from lines through the times that the ranks took for
several splits at the start; proportional divides by a profile's scores, or without one by the
samples/s of equal shares; "off" has equal shares with neither profiling nor balancing. The first step of each block is left out.
The comparison is an experiment of its own, NAME-balance_compare: it never moves or replaces a training run.
A policy's share of the oracle is the oracle's time of a step over its own, summed over the later two thirds of the rounds; the interval is a
bootstrap over rounds (95 %). "to steady" counts a policy's rebalances until its shares stay within 1 % of the best ones, as far as lines through the
times of all blocks can tell (bootstrap over blocks).`

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
	all := append(parts.KindNames(a.env.catalog.Policies), contestOracle)
	cmd.Flags().StringSliceVar(&f.policies, "policies", all, "policies that take turns, of "+strings.Join(append(slices.Clone(all), contestOff), ", "))
	cmd.Flags().IntVar(&f.block, "block", 10, "steps of a turn")
	cmd.Flags().IntVar(&f.rounds, "rounds", 30, "turns of each")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(all); err != nil {
			return err
		}
		own, err := a.comparisonFolders()
		if err != nil {
			return err
		}
		for _, s := range append(own, [][2]string{{"train.steps", fmt.Sprint(4 * f.block * (len(f.policies)*f.rounds + 40))}, {"train.resume", "none"}, {"train.eval_interval", "0"},
			{"checkpoint.interval_seconds", "0"}, {"checkpoint.interval_steps", "0"}, {"schedule.name", "constant"}, {"balance.curve_cache", "off"}}...) {
			a.overrides = append(a.overrides, config.Override{Origin: "balance compare", Key: s[0], Value: s[1]})
		}
		a.contest = f
		return a.train(cmd.Context(), nil)
	}
	return cmd
}

// comparisonFolders are the settings that give a comparison folders of its own: never those of a training run, which it would move aside.
func (a *app) comparisonFolders() ([][2]string, error) {
	name := "balance_compare"
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	if user := cfg.Experiment.Name; cfg.Origin(nameKey) != "" {
		name = user[:min(len(user), 64-len(name)-1)] + "-" + name
	}
	own := [][2]string{{"experiment.name", name}}
	if dir := cfg.Experiment.LogDir; dir != "" {
		own = append(own, [2]string{"experiment.log_dir", strconv.Quote(filepath.Join(dir, name))})
	}
	return own, nil
}

// leastRounds that a comparison needs: the first third of them is left out.
const leastRounds = 3

func (f *contestFlags) check(known []string) error {
	known = append(slices.Clone(known), contestOff)
	for i, p := range f.policies {
		if !slices.Contains(known, p) || slices.Contains(f.policies[:i], p) {
			return exit.Usagef("balance compare: --policies: got %q, want some of %s, each once", p, strings.Join(known, ", "))
		}
	}
	const most = 1_000_000
	if f.block > most || f.rounds > most {
		return exit.Usagef("balance compare: got --block %d and --rounds %d, want at most %d of each", f.block, f.rounds, most)
	}
	if len(f.policies) < 1 || f.block < 3 || f.rounds < leastRounds {
		return exit.Usagef("balance compare: got %d policies, --block %d, --rounds %d, want at least 1, 3 and %d", len(f.policies), f.block, f.rounds, leastRounds)
	}
	return nil
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
	Settled       int          `json:"rebalances_until_steady"` // until its shares stay within 1 % of the best's time, as far as the times of all blocks tell; -1: never
	Blocks        []blockMeans `json:"blocks"`                  // in the order of rounds
}

func (c *contest) results(h *hindsight) []contestResult {
	unknown := interval{experiment.Number(show.NaN), experiment.Number(show.NaN), experiment.Number(show.NaN)}
	rounds := c.round // finished ones
	steady := rounds / 3
	oracle := slices.IndexFunc(c.contestants, func(p *contestant) bool { return p.name == contestOracle })
	var out []contestResult
	for _, name := range c.flags.policies {
		p := c.contestants[slices.IndexFunc(c.contestants, func(p *contestant) bool { return p.name == name })]
		r := contestResult{Policy: name, Shares: p.shares, Rebalances: len(p.changes), Settled: h.settled(p), ShareOfOracle: unknown, ByMedians: unknown, Blocks: p.blocks[:rounds]}
		own, medians := secondsOf(r.Blocks[steady:])
		for _, b := range r.Blocks[steady:] {
			n := float64(len(own))
			r.StepSeconds, r.Imbalance, r.Exposed = r.StepSeconds+b.Seconds/n, r.Imbalance+b.Imbalance/n, r.Exposed+b.Exposed/n
		}
		if oracle >= 0 {
			best, bestMedians := secondsOf(c.contestants[oracle].blocks[steady:rounds])
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

// report prints the table and keeps all figures with the run; of a run that was stopped, those of the finished rounds.
func (c *contest) report(j *Run) error {
	if c.round < leastRounds {
		return fmt.Errorf("balance compare: the run ended in round %d of %d, want at least %d finished ones for a comparison", c.round+1, c.flags.rounds, leastRounds)
	}
	h := c.hindsight()
	results, ofBest := c.results(h), h.shareOfBest(c.oracle)
	out := j.opts.env.stdout
	fmt.Fprintf(out, "%d ranks, batch %d, blocks of %d steps, %d of %d rounds, of which the later %d count; measured oracle: shares %v\n",
		len(c.times), j.cfg.Data.BatchSize, c.flags.block, c.round, c.flags.rounds, c.round-c.round/3, c.oracle)
	fmt.Fprintf(out, "by the times of all %d blocks the best shares are %v; the oracle's compute is at %.4f of theirs (%.4f to %.4f)\n", len(c.measured), h.best, ofBest.Ratio, ofBest.Low, ofBest.High)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "policy\tms a step\timg/s\tof the oracle\t95 %\tby medians\t95 %\timbalance\tcomm ms\trebalances\tto steady\tshares\t\n")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%.1f\t%.0f\t%s\t%s to %s\t%s\t%s to %s\t%.1f %%\t%.2f\t%d\t%d\t%v\t\n", r.Policy, 1e3*r.StepSeconds, float64(j.cfg.Data.BatchSize)/r.StepSeconds,
			show.Figure("%.4f", r.ShareOfOracle.Ratio), show.Figure("%.4f", r.ShareOfOracle.Low), show.Figure("%.4f", r.ShareOfOracle.High),
			show.Figure("%.4f", r.ByMedians.Ratio), show.Figure("%.4f", r.ByMedians.Low), show.Figure("%.4f", r.ByMedians.High), 100*r.Imbalance, 1e3*r.Exposed, r.Rebalances, r.Settled, r.Shares)
	}
	w.Flush()
	text, err := json.MarshalIndent(map[string]any{"ranks": len(c.times), "batch_size": j.cfg.Data.BatchSize, "block": c.flags.block, "rounds": c.round,
		"oracle": c.oracle, "oracle_of_best": ofBest, "best": h.best, "measured": c.measured, "results": results}, "", " ")
	if err == nil {
		err = experiment.ReplaceText(filepath.Join(j.folder.LogDir(), "balance_compare.json"), append(text, '\n'))
	}
	return exit.With(exit.IO, err)
}

// quiet reports whether profiling is off in this step.
func (b *balancing) quiet() bool { return b != nil && b.contest.quiet() }

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
