package schedule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/compare"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/profiler/drawing"
)

const simulateLong = `Simulate one scheduling policy on a cluster, and print the results.

The simulation is exact and repeatable: equal flags give equal results. HyperScore compares the run with policy fcfs on the same jobs.` + sourceLong

const simulateExample = `  hetero-train schedule simulate
  hetero-train schedule simulate --policy srf --jobs 500 --load 0.9 --seed 3
  hetero-train schedule simulate --policy rule --json`

type simulateFlags struct {
	source
	policyName string
	seed       uint64
	json       bool
	gantt      string
}

func newSimulate(a *cli.App) *cobra.Command {
	f := &simulateFlags{source: source{policies: policies{command: "schedule simulate", warn: warnOnce(a)}}}
	cmd := &cobra.Command{Use: "simulate", Short: "Simulate one scheduling policy on a cluster", Long: simulateLong,
		Example: simulateExample, Args: cli.NoArguments}
	flags := cmd.Flags()
	flags.StringVar(&f.policyName, "policy", defaultPolicy, policyUsage("policy to simulate"))
	flags.Uint64Var(&f.seed, "seed", 1, "seed of the generated jobs")
	flags.StringVar(&f.gantt, "gantt", "", "draw the GPUs of each job over time into this PNG or SVG `FILE`")
	flags.BoolVar(&f.json, "json", false, "print only one JSON object with the result")
	f.addPrices(flags)
	f.add(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), a) }
	return cmd
}

// simulated is the JSON output of a simulation.
type simulated struct {
	Policy string `json:"policy"`
	Seed   uint64 `json:"seed"`
	compare.Figures
	Estimates  string          `json:"estimates,omitempty"`
	V          *float64        `json:"v"`          // null: no comparison
	HyperScore *float64        `json:"hyperscore"` // null: no comparison
	GPUs       []simulatedGPU  `json:"gpus"`
	Jobs       []simulatedJob  `json:"jobs"`
	Stays      []simulatedStay `json:"stays"` // stays of jobs on GPUs, in the order of their start
}

type simulatedGPU struct {
	Name      string  `json:"name"`
	Type      string  `json:"type"`
	Busy      float64 `json:"busy_h"`
	Available float64 `json:"available_h"`
}

type simulatedJob struct {
	Name    string  `json:"name"`
	Kind    string  `json:"kind"`
	GPUs    int     `json:"gpus"`
	Arrival float64 `json:"arrival_s"`
	Start   float64 `json:"start_s"`
	Finish  float64 `json:"finish_s"`
	Stops   int     `json:"stops"`
}

type simulatedStay struct {
	Job  string   `json:"job"`
	GPUs []string `json:"gpus"`
	From float64  `json:"from_s"`
	To   float64  `json:"to_s"`
}

func (f *simulateFlags) run(ctx context.Context, a *cli.App) (err error) {
	defer func() { err = errors.Join(err, f.close()) }()
	if err := f.checkNetwork(f.policyName); err != nil {
		return err
	}
	if f.gantt != "" {
		if err := drawing.CheckFile(f.gantt); err != nil {
			return exit.Usagef("%s: --gantt: %w", f.command, err)
		}
		if f.gantt, err = checkOutput(f.command, "--gantt", f.gantt); err != nil {
			return err
		}
	}
	if err := f.open(ctx, a); err != nil {
		return err
	}
	if f.seed, err = f.single(f.seed); err != nil {
		return err
	}
	jobs, err := f.jobs(ctx, f.seed)
	if err != nil {
		return err
	}
	run := func(name string) (*scheduler.Result, compare.Figures, error) {
		r, err := f.play(ctx, &f.policies, f.command, name, f.seed, jobs, true, nil)
		if err != nil {
			return nil, compare.Figures{}, err
		}
		figures, err := f.judged(jobs, r)
		return r, figures, err
	}
	result, figures, err := run(f.policyName)
	if err != nil {
		return err
	}
	var row *compare.Row // nil: the baseline cannot run these jobs
	_, base, err := run(baseline)
	switch {
	case leavesOut(err):
		a.WarnOf(fmt.Sprintf("the results have no comparison with policy %s: %v", baseline, err))
	case err != nil:
		return err
	default:
		study, err := compare.New("base", []uint64{f.seed}, []compare.Runs{
			{Policy: "base", Figures: []compare.Figures{base}}, {Policy: "run", Figures: []compare.Figures{figures}}})
		if err != nil {
			return fmt.Errorf("%s: %w", f.command, err)
		}
		row = &study.Rows[1]
	}
	if f.gantt != "" {
		if err := drawGantt(f.gantt, "Jobs on GPUs, policy "+f.policyName, f.setup.Cluster, jobs, result); err != nil {
			return fmt.Errorf("%s: %w", f.command, err)
		}
	}
	if f.json {
		return show.JSON(a.Env.Stdout, f.document(result, figures, jobs, row))
	}
	_, err = io.WriteString(a.Env.Stdout, f.text(result, figures, row))
	return err
}

func (f *simulateFlags) document(r *scheduler.Result, figures compare.Figures, w *scheduler.Workload,
	row *compare.Row) simulated {
	c := f.setup.Cluster
	out := simulated{Policy: f.policyName, Seed: f.seed, Figures: figures, Estimates: f.unsure.text(f.listed)}
	if row != nil {
		out.V, out.HyperScore = &row.V.Mean, &row.HyperScore.Mean
	}
	for g, gpu := range c.GPUs {
		out.GPUs = append(out.GPUs, simulatedGPU{gpu.Name, c.Types[gpu.Type].Name, r.GPUHours[g], r.Available[g]})
	}
	for i, job := range w.Jobs {
		done := r.Jobs[i]
		out.Jobs = append(out.Jobs, simulatedJob{job.Name, w.Kinds[job.Kind].Name, job.GPUs, done.Arrival, done.Start,
			done.Finish, done.Stops})
	}
	for _, s := range r.Segments {
		names := make([]string, len(s.GPUs))
		for i, g := range s.GPUs {
			names[i] = c.GPUs[g].Name
		}
		out.Stays = append(out.Stays, simulatedStay{w.Jobs[s.Job].Name, names, s.From, s.To})
	}
	return out
}

func (f *simulateFlags) text(r *scheduler.Result, figures compare.Figures, row *compare.Row) string {
	var b strings.Builder
	c := f.setup.Cluster
	fmt.Fprintf(&b, "%s: %s on %s in %s, %s, %s\n", f.policyName, show.Count(len(r.Jobs), "job"),
		show.Count(len(c.GPUs), "GPU"), seconds(figures.Makespan),
		show.Count(r.Decisions, "decision"), show.Count(r.Events, "event"))
	fmt.Fprintf(&b, "completion   %s mean, of which %s waiting%s\n", seconds(figures.Completion), seconds(figures.Wait),
		times(row, func(r *compare.Row) compare.Ratio { return r.CompletionRatio }))
	fmt.Fprintf(&b, "             %s p50, %s p95, %s p99\n", seconds(figures.P50), seconds(figures.P95),
		seconds(figures.P99))
	for _, g := range figures.Gangs {
		fmt.Fprintf(&b, "             %s longest wait of %s with %s\n", seconds(g.Worst), show.Count(g.Jobs, "job"),
			show.Count(g.GPUs, "GPU"))
	}
	fmt.Fprintf(&b, "throughput   %s jobs/h%s\n", figure(figures.Throughput, 2),
		times(row, func(r *compare.Row) compare.Ratio { return r.ThroughputRatio }))
	fmt.Fprintf(&b, "utilization  %.1f %% of the GPU time%s\n", 100*figures.Utilization,
		times(row, func(r *compare.Row) compare.Ratio { return r.UtilizationRatio }))
	for t, typ := range c.Types {
		var busy, available float64
		count := 0
		for g := range c.GPUs {
			if c.GPUs[g].Type == t {
				busy, available, count = busy+r.GPUHours[g], available+r.Available[g], count+1
			}
		}
		if available > 0 {
			fmt.Fprintf(&b, "             %.1f %% of %d %s\n", 100*busy/available, count, typ.Name)
		}
	}
	if s := figures.Steady; s != nil {
		fmt.Fprintf(&b, "steady       %s jobs/h and %.1f %% of the GPU time from %s to %s, L/(lambda W) %.2f\n",
			figure(s.Throughput, 2), 100*s.Utilization, seconds(s.From), seconds(s.To), s.Little)
	}
	if figures.Fairness != nil {
		fmt.Fprintf(&b, "fairness     %.3f\n", *figures.Fairness)
	}
	if figures.Slowdown != nil {
		fmt.Fprintf(&b, "slowdown     %s, mean bounded slowdown\n", figure(*figures.Slowdown, 2))
	}
	fmt.Fprintf(&b, "stops        %d\n", figures.Stops)
	fmt.Fprintf(&b, "GPU time     %s\n", seconds(3600*figures.GPUHours))
	if figures.Cost != nil {
		fmt.Fprintf(&b, "cost         %s\n", figure(*figures.Cost, 2))
	}
	if unsure := f.unsure.text(f.listed); unsure != "" {
		fmt.Fprintf(&b, "estimates    %s\n", unsure)
	}
	if row != nil {
		fmt.Fprintf(&b, "HyperScore   %.3f | V = %s, the geometric mean of the three ratios\n", row.HyperScore.Mean,
			figure(row.V.Mean, 3))
	}
	return b.String()
}

// times shows a ratio to the baseline. It returns "" without a baseline.
func times(row *compare.Row, of func(*compare.Row) compare.Ratio) string {
	if row == nil {
		return ""
	}
	return fmt.Sprintf(" | %s x %s", figure(of(row).Mean, 3), baseline)
}
