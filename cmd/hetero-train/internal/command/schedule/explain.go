package schedule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
)

const explainLong = `Explain why a job of a simulation ran on its GPUs.

The command runs the same simulation as schedule simulate. For each stay of the job on GPUs, it prints the reason of the policy and the
alternatives at this moment: for each type of GPU, how many were free, how fast the job would have been, and when it would have finished
if nothing had changed. The list also has the fastest way to share the GPUs of a running job, for each type.

The speeds do not include the limits of the network.` + sourceLong

const explainExample = `  hetero-train schedule explain --job job-7
  hetero-train schedule explain --job job-7 --policy srf --seed 3
  hetero-train schedule explain --job first --input cluster.toml --input jobs.csv --default jobs.network=0 --json`

type explainFlags struct {
	source
	policyName string
	seed       uint64
	job        string
	json       bool
}

func newExplain(a *cli.App) *cobra.Command {
	f := &explainFlags{
		source: source{policies: policies{command: "schedule explain", explain: true, warn: warnOnce(a)}}}
	cmd := &cobra.Command{Use: "explain --job NAME", Short: "Explain why a job ran on its GPUs", Long: explainLong,
		Example: explainExample, Args: cli.NoArguments}
	flags := cmd.Flags()
	flags.StringVar(&f.job, "job", "", "`NAME` of the job; schedule simulate --json lists the jobs")
	flags.StringVar(&f.policyName, "policy", defaultPolicy, policyUsage("policy to simulate"))
	flags.Uint64Var(&f.seed, "seed", 1, "seed of the generated jobs")
	flags.BoolVar(&f.json, "json", false, "print only one JSON object with the explanation")
	f.add(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), a) }
	return cmd
}

// explanation is the history of a job in the JSON output. Missing numbers are null.
type explanation struct {
	Policy   string   `json:"policy"`
	Seed     *uint64  `json:"seed"` // null if the jobs come from files
	Job      string   `json:"job"`
	Kind     string   `json:"kind"`
	GPUs     int      `json:"gpus"`
	Work     float64  `json:"work_steps"`
	Priority float64  `json:"priority"`
	Arrival  float64  `json:"arrival_s"`
	Start    float64  `json:"start_s"`
	Finish   float64  `json:"finish_s"`
	Stops    int      `json:"stops"`
	Before   int      `json:"jobs_before_it"` // jobs in the queue when the job arrived
	Free     []pool   `json:"free_at_arrival"`
	Stays    []stayed `json:"stays"`
	Unsure   string   `json:"estimates,omitempty"` // estimates that the policy saw; "" if it saw the exact work
}

func (f *explainFlags) run(ctx context.Context, a *cli.App) (err error) {
	defer func() { err = errors.Join(err, f.close()) }()
	if f.job == "" {
		return exit.Usagef("%s: want the name of a job in --job", f.command)
	}
	if err := f.checkNetwork(f.policyName); err != nil {
		return err
	}
	if err := f.open(ctx, a); err != nil {
		return err
	}
	seed, err := f.single(f.seed)
	if err != nil {
		return err
	}
	jobs, err := f.jobs(ctx, seed)
	if err != nil {
		return err
	}
	job, err := f.find(jobs)
	if err != nil {
		return err
	}
	watch := &witness{job: job}
	result, err := f.play(ctx, &f.policies, f.command, f.policyName, seed, jobs, true, watch)
	if err != nil {
		return err
	}
	out := f.explain(watch, result, jobs)
	out.Unsure = f.unsure.text(f.listed)
	if f.json {
		return show.JSON(a.Env.Stdout, out)
	}
	_, err = io.WriteString(a.Env.Stdout, out.text())
	return err
}

// find returns the index of the job that --job names.
func (f *explainFlags) find(w *scheduler.Workload) (int, error) {
	named := func(j scheduler.Job) bool { return j.Name == f.job }
	job := slices.IndexFunc(w.Jobs, named)
	if job < 0 {
		return 0,
			exit.Usagef(
				"%s: --job: unknown job: got %q, want one of %d jobs from %q to %q; schedule simulate --json lists them",
				f.command, f.job, len(w.Jobs), w.Jobs[0].Name, w.Jobs[len(w.Jobs)-1].Name)
	}
	if slices.ContainsFunc(w.Jobs[job+1:], named) {
		return 0, exit.Usagef("%s: --job: several jobs have the name %q, want a unique name", f.command, f.job)
	}
	return job, nil
}

// ends contains the names of the values of scheduler.End.
var ends = [...]string{scheduler.Finished: "finished", scheduler.Stopped: "stopped", scheduler.Failed: "failed",
	scheduler.Unfinished: "unfinished"}

// explain joins the records of the witness with the result of the run.
func (f *explainFlags) explain(watch *witness, r *scheduler.Result, w *scheduler.Workload) *explanation {
	j, done := &w.Jobs[watch.job], r.Jobs[watch.job]
	out := &explanation{Policy: f.policyName, Job: j.Name, Kind: w.Kinds[j.Kind].Name, GPUs: j.GPUs, Work: j.Work,
		Priority: j.Priority,
		Arrival:  done.Arrival, Start: done.Start, Finish: done.Finish, Stops: done.Stops, Before: watch.before,
		Free: watch.free, Stays: watch.stays}
	if f.listed == nil {
		out.Seed = &f.seed
	}
	i := 0
	for _, s := range r.Segments { // segments and stays are in chronological order
		if s.Job == watch.job {
			out.Stays[i].To, out.Stays[i].Ended = s.To, ends[s.Ended]
			i++
		}
	}
	return out
}

func (e *explanation) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s | GPUs: %d | work: %.6g steps | priority: %.2f | policy: %s\n", show.Foreign(e.Job),
		show.Foreign(e.Kind), e.GPUs, e.Work, e.Priority, e.Policy)
	fmt.Fprintf(&b, "arrived at %s | started after %s | finished after %s | stops: %d\n", seconds(e.Arrival),
		seconds(e.Start-e.Arrival), seconds(e.Finish-e.Arrival), e.Stops)
	var free []string
	for _, p := range e.Free {
		free = append(free, fmt.Sprintf("%d of %d %s", p.Free, p.Available, show.Foreign(p.Type)))
	}
	fmt.Fprintf(&b, "at its arrival: jobs before it in the queue: %d | free GPUs: %s\n", e.Before,
		strings.Join(free, ", "))
	if e.Unsure != "" {
		fmt.Fprintf(&b, "remaining work and predicted ends are estimates: %s\n", e.Unsure)
	}
	for _, s := range e.Stays {
		fmt.Fprintf(&b, "\n%s to %s on %s: %s\n", seconds(s.From), seconds(s.To),
			strings.Join(show.Foreigners(s.GPUs), ", "), s.Ended)
		fmt.Fprintf(&b, "  started because: %s\n", show.Foreign(s.Reason))
		if s.StopReason != "" {
			fmt.Fprintf(&b, "  stopped because: %s\n", show.Foreign(s.StopReason))
		}
		fmt.Fprintf(&b, "  remaining work: %.6g steps | jobs in the queue: %d | alternatives at this time:\n",
			s.Remaining, s.Queue)
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t, "    GPUs\tsteps/s\tpredicted end\tnote\n")
		for _, o := range s.Alternatives {
			var notes []string
			if o.Chosen {
				notes = append(notes, "chosen")
			}
			if o.Shares != "" {
				notes = append(notes, "shared with "+show.Foreign(o.Shares))
			}
			if o.Not != "" {
				notes = append(notes, o.Not)
			}
			speed, end := "-", "-"
			if v, ok := o.Speed.(float64); ok {
				speed = fmt.Sprintf("%.4g", v)
			}
			if v, ok := o.Finish.(float64); ok {
				end = seconds(v)
			}
			fmt.Fprintf(t, "    %s\t%s\t%s\t%s\n", show.Foreign(o.Types), speed, end, strings.Join(notes, ", "))
		}
		t.Flush() // no error: the table is written to memory
	}
	return b.String()
}
