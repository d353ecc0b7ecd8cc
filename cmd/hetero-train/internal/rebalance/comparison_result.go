package rebalance

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/experiment"
)

// ComparisonResult is the result of one candidate.
type ComparisonResult struct {
	Policy        string   `json:"policy"`
	Shares        []int    `json:"shares"` // shares at the end of the run
	StepSeconds   float64  `json:"step_seconds"`
	ShareOfOracle interval `json:"share_of_oracle"`
	// ByMedians is like ShareOfOracle, but uses the median step of each block. Single slow steps hardly change a
	// median.
	ByMedians  interval `json:"share_of_oracle_by_medians"`
	Imbalance  float64  `json:"imbalance"`
	Exposed    float64  `json:"communication_seconds"`
	Rebalances int      `json:"rebalances"`
	// Settled is the number of changes after which the shares stay within 1 % of the best time. It is -1 if the last
	// shares are outside this range. The best time comes from the times of all blocks.
	Settled int          `json:"rebalances_until_steady"`
	Blocks  []blockMeans `json:"blocks"` // blocks of this candidate, in the order of the rounds
}

func (c *comparison) results(h *hindsight) []ComparisonResult {
	unknown := interval{experiment.Number(show.NaN), experiment.Number(show.NaN), experiment.Number(show.NaN)}
	rounds := c.round // number of finished rounds
	steady := rounds / 3
	oracle := slices.IndexFunc(c.candidates, func(p *candidate) bool { return p.name == ComparisonOracle })
	var out []ComparisonResult
	for _, name := range c.flags.Policies {
		p := c.candidates[slices.IndexFunc(c.candidates, func(p *candidate) bool { return p.name == name })]
		r := ComparisonResult{Policy: name, Shares: p.shares, Rebalances: len(p.changes), Settled: h.settled(p),
			ShareOfOracle: unknown, ByMedians: unknown, Blocks: p.blocks[:rounds]}
		own, medians := secondsOf(r.Blocks[steady:])
		for _, b := range r.Blocks[steady:] {
			n := float64(len(own))
			r.StepSeconds, r.Imbalance, r.Exposed = r.StepSeconds+b.Seconds/n, r.Imbalance+b.Imbalance/n,
				r.Exposed+b.Exposed/n
		}
		if oracle >= 0 {
			best, bestMedians := secondsOf(c.candidates[oracle].blocks[steady:rounds])
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

// Report prints the table of results and stores all numbers in the log folder of the run. If the run was stopped, the
// results cover the finished rounds.
func (c *comparison) Report(a *assembly.Run) error {
	if c.round < LeastRounds {
		return fmt.Errorf("balance compare: the run ended in round %d of %d, want at least %d finished rounds",
			c.round+1, c.flags.Rounds, LeastRounds)
	}
	h := c.hindsight()
	results, ofBest := c.results(h), h.shareOfBest(c.oracle)
	out := a.Process.Opts.Env.Stdout
	fmt.Fprintf(out, "%d ranks, batch %d, blocks of %d steps, %d of %d rounds; the last %d rounds count; measured oracle: shares %v\n",
		len(c.times), a.Process.Cfg.Data.BatchSize, c.flags.Block, c.round, c.flags.Rounds, c.round-c.round/3, c.oracle)
	fmt.Fprintf(out, "best shares by the times of all %d blocks: %v; compute time of these shares / compute time of the oracle: %.4f (%.4f to %.4f)\n",
		len(c.measured), h.best, ofBest.Ratio, ofBest.Low, ofBest.High)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "policy\tms/step\tsamples/s\tof the oracle\t95 %\tby medians\t95 %\timbalance\tcomm ms\trebalances\tto steady\tshares\t\n")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%.1f\t%.0f\t%s\t%s to %s\t%s\t%s to %s\t%.1f %%\t%.2f\t%d\t%d\t%v\t\n", r.Policy,
			1e3*r.StepSeconds, float64(a.Process.Cfg.Data.BatchSize)/r.StepSeconds,
			show.Figure("%.4f", r.ShareOfOracle.Ratio), show.Figure("%.4f", r.ShareOfOracle.Low),
			show.Figure("%.4f", r.ShareOfOracle.High),
			show.Figure("%.4f", r.ByMedians.Ratio), show.Figure("%.4f", r.ByMedians.Low),
			show.Figure("%.4f", r.ByMedians.High), 100*r.Imbalance, 1e3*r.Exposed, r.Rebalances, r.Settled, r.Shares)
	}
	w.Flush()
	text, err := json.MarshalIndent(map[string]any{"ranks": len(c.times), "batch_size": a.Process.Cfg.Data.BatchSize,
		"block": c.flags.Block, "rounds": c.round,
		"oracle": c.oracle, "oracle_of_best": ofBest, "best": h.best, "measured": c.measured, "results": results}, "",
		" ")
	if err == nil {
		err = experiment.ReplaceText(filepath.Join(a.Folder.LogDir(), "balance_compare.json"), append(text, '\n'))
	}
	return exit.With(exit.IO, err)
}
