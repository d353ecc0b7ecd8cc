package analysis

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Figure describes a drawing in a report.
type Figure struct {
	Title   string // one line
	Caption string // contents of the figure and how to read it
	Path    string // path of the PNG relative to the report; the SVG in the same folder has the same name
}

// Report returns the study as Markdown. figures contains the figures of each comparison, by its ID. overview contains
// the figures of the whole study.
func (s *Study) Report(figures map[string][]Figure, overview []Figure) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Balancing policies compared\n\nRuns read from `%s`. Intervals are %g %% confidence intervals; [Method](#method) explains them.\n\n",
		s.Root, 100*s.Confidence)
	b.WriteString("## Overview\n\n")
	b.WriteString(s.overviewTable())
	b.WriteString("\n")
	b.WriteString(figureText(overview))
	for _, c := range s.Comparisons {
		b.WriteString(c.section(s))
		b.WriteString(figureText(figures[c.ID]))
	}
	b.WriteString(s.method())
	b.WriteString(s.leftOut())
	return b.String()
}

func (s *Study) overviewTable() string {
	var rows [][]string
	for _, c := range s.Comparisons {
		for _, p := range c.Policies {
			rows = append(rows, []string{c.Model, c.Dataset, c.Scenario, fmt.Sprint(c.BatchSize), p.Policy,
				interval(p.Throughput, 1, asDigits, ""), interval(p.Speedup, 1, "%.2f", "x"),
				interval(p.Oracle, 100, "%.1f", " %")})
		}
	}
	columns, rows := withoutEmpty([]string{"model", "data set", "scenario", "batch", "policy", "throughput, samples/s",
		"speed-up over none", "mean fraction of oracle"}, rows)
	return markdown(columns, rows)
}

func figureText(figures []Figure) string {
	var b strings.Builder
	for _, f := range figures {
		fmt.Fprintf(&b, "![%s](%s)\n\n*%s.* %s\n\n", f.Title, f.Path, f.Title, f.Caption)
	}
	return b.String()
}

func (c *Comparison) section(s *Study) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s on %s, scenario %s, batch %d\n\n", c.Model, c.Dataset, c.Scenario, c.BatchSize)
	b.WriteString("### Setup\n\n")
	b.WriteString(markdown([]string{"", ""}, c.setup(s)))
	b.WriteString("\n")
	if len(c.Solo) > 0 {
		var rows [][]string
		for rank, solo := range c.Solo {
			row := []string{fmt.Sprint(rank), noValue, solo.Scenario, interval(solo.Throughput, 1, asDigits, "")}
			if rank < len(c.Devices) {
				row[1] = c.Devices[rank]
			}
			rows = append(rows, row)
		}
		columns, rows := withoutEmpty([]string{"rank", "stands for", "scenario alone", "samples/s alone"}, rows)
		b.WriteString(markdown(columns, rows) + "\n")
	}
	for _, note := range c.Notes {
		fmt.Fprintf(&b, "> Note: %s.\n\n", note)
	}
	b.WriteString("### Results\n\n")
	b.WriteString(markdown(withoutEmpty(resultColumns, c.resultRows())))
	b.WriteString("\n" + c.explain())
	if c.expects() {
		if rows := c.expectedRows(); len(rows) > 0 {
			b.WriteString("The five figures of each policy, measured and expected. The expected values apply to four unequal workers (docs/reports.md).\n\n")
			b.WriteString(markdown(c.fiveFigures()))
			b.WriteString("\n")
			fmt.Fprintf(&b, "The next table has the speed-up over policy `none`, and the ratios of the other figures to those of `none`. Each expected ratio uses one value within the expected range above. The maximum speed-up of these ranks is %.2f (sum of their solo throughputs / (4 x the slowest one)).\n\n",
				c.possible())
			b.WriteString(markdown([]string{"", "policy", "expected", "measured", "verdict"}, rows))
			b.WriteString("\n")
		}
	}
	b.WriteString(c.lostTable())
	return b.String()
}

func (c *Comparison) setup(s *Study) [][]string {
	run := c.Policies[0].Runs[0]
	rows := [][]string{{"model", c.Model}, {"data set", c.Dataset}, {"scenario", c.Scenario},
		{"ranks", fmt.Sprint(c.Ranks)}, {"global batch", fmt.Sprintf("%d samples", c.BatchSize)}}
	if c.Machine != "" {
		rows = append(rows, []string{"machine", c.Machine})
	}
	total := run.Steps[len(run.Steps)-1].Iteration
	rows = append(rows, []string{"precision", run.Result.Precision},
		[]string{"optimizer", run.Settings["optimizer.name"]},
		[]string{"steps of a run", fmt.Sprintf("%d, of which the first %d are warm-up", total,
			WarmUp(total, s.WarmUpSteps))}, []string{"program", run.Result.Program})
	for _, p := range c.Policies {
		rows = append(rows,
			[]string{"runs of " + p.Policy, fmt.Sprintf("%d, seeds %s", len(p.Runs), strings.Join(p.Seeds, ", "))})
	}
	return rows
}

// explain returns remarks that are not in the table.
func (c *Comparison) explain() string {
	var b strings.Builder
	if c.TargetLoss == c.TargetLoss { // false for NaN, which means unknown
		fmt.Fprintf(&b, "*Time to loss* is the mean time from the start of training to a loss of %.4f (mean of %d steps), the lowest that all runs reached.",
			c.TargetLoss, blockSteps)
		if base := c.Policies[0]; base.Policy == baseline {
			for _, p := range c.Policies[1:] {
				fmt.Fprintf(&b, " `%s` took %.2f times as long as `none`.", p.Policy,
					average(p.SecondsTo)/average(base.SecondsTo))
			}
		}
		if c.LossSpread == c.LossSpread {
			fmt.Fprintf(&b,
				" With the same seed the loss curves of the policies differ by at most %.2g %% of the first loss.",
				100*c.LossSpread)
		}
		b.WriteString("\n\n")
	}
	return b.String()
}

// lostTable returns the table of the balancer's lost times, or "" if they are unknown.
func (c *Comparison) lostTable() string {
	var causes []string
	for _, p := range c.Policies {
		for cause := range p.Lost {
			if !slices.Contains(causes, cause) {
				causes = append(causes, cause)
			}
		}
	}
	if len(causes) == 0 {
		return ""
	}
	slices.Sort(causes)
	var rows [][]string
	for _, p := range c.Policies {
		row := []string{p.Policy}
		for _, cause := range causes {
			seconds, ok := p.Lost[cause]
			if !ok {
				seconds = unknown
			}
			row = append(row, value(seconds, 1000, "%.1f", ""))
		}
		rows = append(rows, row)
	}
	return "Milliseconds lost per step, by cause:\n\n" + markdown(append([]string{"policy"}, causes...), rows) + "\n"
}

func (s *Study) method() string {
	warm := "the first fifth of its steps, and at least 30"
	if s.WarmUpSteps >= 0 {
		warm = fmt.Sprintf("its first %d steps", s.WarmUpSteps)
	}
	return fmt.Sprintf(`## Method

Runs are compared only if all their settings are equal except the policy and the seed: model, data set, batch, optimizer, scenario, machine and every other key.
The steady state of a run is the run without %s. The figures describe the steady state. Loss curves and the time to loss describe the whole run.

| Figure | Value of one run |
|---|---|
| throughput | samples of all ranks / training time. Training time is the sum of the step times. A step lasts from the end of the previous step to its own end, without evaluations, saves and other pauses |
| utilization | arithmetic mean, over ranks and steps, of the utilization that a rank reports; for a CPU rank, the used fraction of the CPUs that the rank may use |
| load imbalance | arithmetic mean, over steps, of (max - min) / max of the ranks' own compute times |
| waiting | arithmetic mean, over steps, of 1 - mean / max of the same times: the fraction of the compute time that the ranks wait for the slowest rank |
| straggler impact | of the waiting: high from %d %% on, medium from %d %% on, low below |
| mean fraction of oracle | step time of the best possible split / step time of the actual split; arithmetic mean over the decisions of the balancer. The balancer estimates both times on its fitted curves, without step noise |

A rank's own compute time is data + forward + backward, without exchanges in which the rank waits for others. Ranks without samples do not count.

The value of a policy is the arithmetic mean of the values of its runs, and each run has the same weight. Lost times are arithmetic means over the decisions of all its runs.
Two figures are ratios of such values:

- speed-up = throughput / throughput of `+"`none`"+`
- scaling efficiency = throughput / sum of the throughputs of the ranks, each alone with the same batch

Intervals are percentile bootstrap intervals with %d replicates (seed %d).
A replicate draws, with replacement, as many runs as there are, and from each run as many blocks of %d consecutive steps as it has. The estimate is computed from the drawn blocks.
Blocks preserve the correlation of neighbouring steps. Drawing runs includes the differences between runs in the interval.
Policies are drawn independently of each other, and so are the runs of single ranks.
With one run of a policy, the interval describes that run only. With two or three runs, it is somewhat too narrow, as every bootstrap of few runs is.

`, warm, int(math.Round(100*highWaiting)), int(math.Round(100*mediumWaiting)), s.Replicates, s.Seed, blockSteps)
}

func (s *Study) leftOut() string {
	if len(s.Skipped)+len(s.Damaged) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("## Skipped runs and damaged records\n\n")
	for _, skipped := range s.Skipped {
		fmt.Fprintf(&b, "- `%s` is not used: %s\n", skipped.Dir, skipped.Reason)
	}
	for _, text := range s.Damaged {
		fmt.Fprintf(&b, "- %s\n", text)
	}
	return b.String()
}

// Causes returns the reasons why folders were skipped, each with the number of its folders. A short message can state
// them.
func Causes(skipped []Skipped) []string {
	count := map[string]int{}
	for _, s := range skipped {
		count[s.Reason]++
	}
	var out []string
	for _, reason := range slices.Sorted(maps.Keys(count)) {
		out = append(out, fmt.Sprintf("%d: %s", count[reason], reason))
	}
	return out
}
