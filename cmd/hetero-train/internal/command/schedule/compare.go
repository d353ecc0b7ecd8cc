package schedule

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	"gonum.org/v1/plot/vg"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/compare"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/profiler/drawing"
)

const compareLong = `Compare scheduling policies on the same simulated jobs.

Each seed gives one list of jobs, and each policy runs on each list. Each ratio therefore compares two policies on the same jobs.

Columns:

  completion    mean time from the arrival of a job to its end
  throughput    finished jobs per hour, from the first arrival to the last end
  utilization   fraction of the available GPU time in which the GPUs had a job
  x fcfs        ratio to the baseline, above 1 if the policy is better: geometric mean over the seeds
  p             probability of such a difference in completion time by chance: signed-rank test of Wilcoxon, corrected for the number of
                policies by Holm's method
  HyperScore    100 * (1 + sigma(5 ln V - ln 2)^2.1), where sigma is the logistic function and V is the geometric mean of the three ratios
                to the baseline, which has V = 1 and HyperScore 109.955; it is above 198 for all V above 3
  slowdown      mean bounded slowdown: time from arrival to end, divided by the running time alone on the fastest GPUs (10 s for
                shorter jobs), at least 1; less is better

Columns of the second table:

  p50, p95, p99     completion times within which 50, 95 and 99 % of the jobs end: mean over the seeds
  longest wait      from arrival to first start, by the number of GPUs of the job: the longest over all seeds

Columns of the third table:

  steady jobs/h, steady %   throughput and utilization in the steady window: from the arrival of the first job after the first fifth of
                            the jobs until the last arrival, because the cluster fills before it and empties after it
  L/(lambda W)              Little's law: jobs in the cluster, divided by arrival rate times mean time from arrival to end; about 1 in a
                            steady state, below 1 while the queue grows
  fairness                  Jain's index of the speeds of jobs of the whole run, relative to each job alone on its fastest GPUs: 1 if all
                            jobs are slowed down by the same factor
  stops/job                 times that the policy stopped a job, or a GPU failed
  GPU h/job                 GPU time that a job of the whole run occupied; with --price also its cost, without idle GPUs

With several baselines, a table for each further baseline follows. All tests of a figure are corrected together.

--plots draws completion, throughput and utilization with their intervals (comparison), the longest waits by number of GPUs (waits), and
the GPUs of each job over time for the first list of jobs (gantt-POLICY).

Policy fcfs lets the first job block all others, so it is a weak baseline. --baseline easy compares with EASY backfilling, which most
clusters use.

If jobs would wait forever under a policy, for example after a change of the cluster, the command leaves the policy out and warns.
It also leaves out policy dqn with --alone, with --agents or with a network of schedule train --alone, if a job needs GPUs of several
types, policy maxmin if a job runs for more than 1e9 s, policy sia if a job runs for more than 1.5e8 s, and both if a job arrives after
1e15 s. A policy that needs more than 10 million starts and stops, or 3 million rounds, to finish a job is left out, too. All ratios need
the baseline: if it cannot run the jobs, the comparison ends with an error.

Intervals have a confidence of 95 % (Student's t over seeds).` + sourceLong

const compareExample = `  hetero-train schedule compare
  hetero-train schedule compare --policy fcfs --policy srf --seeds 50 --load 0.95
  hetero-train schedule compare --baseline easy,srpt --jobs 2000 --seeds 5
  hetero-train schedule compare --estimate-error 1 --estimates history --plots plots
  hetero-train schedule compare --surge 5 --csv runs.csv --json > comparison.json
  hetero-train schedule compare --speeds simulation_throughputs.json --gpus v100=12,p100=12,k80=12 --trace a.trace --trace b.trace`

type compareFlags struct {
	source
	names []string
	bases []string // the baselines
	count int
	first uint64
	csv   string
	plots string // folder of the plots
	json  bool
}

func newCompare(a *cli.App) *cobra.Command {
	f := &compareFlags{source: source{policies: policies{command: "schedule compare", warn: warnOnce(a)}}}
	cmd := &cobra.Command{Use: "compare", Short: "Compare scheduling policies on the same jobs", Long: compareLong,
		Example: compareExample, Args: cli.NoArguments}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.names, "policy", policyNames(),
		"policies to compare, repeatable; dqn:FOLDER is policy dqn with a network of schedule train; the baseline is always included")
	flags.StringSliceVar(&f.bases, "baseline", []string{baseline}, policyUsage(
		"policies with which the others are compared, repeatable; the first one gives the columns of ratios and HyperScore"))
	flags.IntVar(&f.count, "seeds", 20, "number of job lists")
	flags.Uint64Var(&f.first, "seed", 1, "first seed; the others follow")
	flags.StringVar(&f.csv, "csv", "", "write one line per run to this CSV `FILE`")
	flags.StringVar(&f.plots, "plots", "", "draw the comparison into this `FOLDER`, as PNG and SVG files; gantt-POLICY only as SVG")
	flags.BoolVar(&f.json, "json", false, "print only one JSON object with the result")
	f.addPrices(flags)
	f.add(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), a) }
	return cmd
}

func (f *compareFlags) run(ctx context.Context, a *cli.App) error {
	const most = 100_000
	if f.count < 1 || f.count > most {
		return exit.Usagef("%s: --seeds: got %d, want 1 to %d", f.command, f.count, most)
	}
	if last := uint64(math.MaxUint64) - uint64(f.count-1); f.first > last {
		return exit.Usagef("%s: --seed: got %d with --seeds %d, want at most %d: no seed follows 2^64 - 1", f.command,
			f.first, f.count, last)
	}
	if len(f.bases) == 0 {
		return exit.Usagef("%s: --baseline: got no policy, want at least 1", f.command)
	}
	for i, name := range f.bases {
		switch {
		case !isPolicy(name):
			return unknownPolicy(f.command, "baseline", name)
		}
		f.bases[i] = cleaned(name)
		if slices.Contains(f.bases[:i], f.bases[i]) {
			return exit.Usagef("%s: --baseline: got %s twice, want each policy once", f.command, f.bases[i])
		}
	}
	for i, name := range f.names {
		f.names[i] = cleaned(name)
	}
	for i := len(f.bases) - 1; i >= 0; i-- {
		if !slices.Contains(f.names, f.bases[i]) {
			f.names = slices.Insert(f.names, 0, f.bases[i])
		}
	}
	for i, name := range f.names {
		if slices.Contains(f.names[:i], name) {
			return exit.Usagef("%s: --policy: got %s twice, want each policy once", f.command, name)
		}
		if !isPolicy(name) {
			return unknownPolicy(f.command, "policy", name)
		}
	}
	if err := f.checkNetwork(f.names...); err != nil {
		return err
	}
	if f.csv != "" {
		var err error
		if f.csv, err = checkOutput(f.command, "--csv", f.csv); err != nil {
			return err
		}
	}
	if f.plots != "" {
		if err := os.MkdirAll(f.plots, 0o755); err != nil {
			return exit.With(exit.IO, fmt.Errorf("%s: --plots: %w", f.command, err))
		}
	}
	if err := f.open(ctx, a); err != nil {
		return err
	}
	study, err := f.study(ctx, a)
	if err != nil {
		return err
	}
	if f.csv != "" {
		if err := writeFile(f.csv, func(w io.Writer) error { return writeRuns(w, study) }); err != nil {
			return err
		}
	}
	if f.plots != "" {
		if err := f.draw(ctx, a, study); err != nil {
			return fmt.Errorf("%s: --plots: %w", f.command, err)
		}
	}
	if f.json {
		return show.JSON(a.Env.Stdout, study)
	}
	_, err = io.WriteString(a.Env.Stdout, comparisonText(study))
	return err
}

// study runs all policies on the jobs of all seeds. It uses all processors.
func (f *compareFlags) study(ctx context.Context, a *cli.App) (*compare.Study, error) {
	all := make([]compare.Runs, len(f.names))
	seeds := make([]uint64, f.seeds(f.count))
	for i := range seeds {
		seeds[i] = f.first + uint64(i)
		if f.listed != nil {
			seeds[i] = uint64(i)
		}
	}
	for p, name := range f.names {
		all[p] = compare.Runs{Policy: name, Figures: make([]compare.Figures, len(seeds))}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lists, stops := make([]context.Context, len(seeds)), make([]context.CancelFunc, len(seeds))
	for i := range lists {
		lists[i], stops[i] = context.WithCancel(ctx)
	}
	unable := make([]refusal, len(f.names)) // for each policy, the list that it cannot run
	var failed refusal                      // first failure, which ends the command
	work := make(chan int)
	var workers sync.WaitGroup
	var done progress
	done.start(a, len(seeds)*len(f.names))
	for range min(runtime.GOMAXPROCS(0), len(seeds)) {
		workers.Go(func() {
			own := f.own()
			defer func() {
				if err := own.close(); err != nil {
					failed.add(len(seeds), err)
				}
			}()
			for i := range work {
				jobs, err := f.jobs(lists[i], seeds[i])
				for p, name := range f.names {
					if err == nil && lists[i].Err() == nil {
						if unable[p].runs(i) {
							all[p].Figures[i], err = f.figures(lists[i], own, f.list(i, seeds[i]), name, seeds[i], jobs)
						}
						switch why := err; {
						case !leavesOut(why):
						case slices.Contains(f.bases, name):
							err = fmt.Errorf(
								"%w; the comparison cannot leave out policy %s, because all ratios refer to this policy",
								why, name)
						default:
							unable[p].add(i, why)
							err = nil
						}
						done.add()
					}
				}
				if err != nil { // stop only later lists: an earlier list may fail too, and its error is then the result
					failed.add(i, err)
					for _, stop := range stops[i:] {
						stop()
					}
				}
			}
		})
	}
	for i := range seeds {
		if ctx.Err() != nil || !failed.runs(i) {
			break
		}
		work <- i
	}
	close(work)
	workers.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if failed.err != nil {
		return nil, failed.err
	}
	var finished []compare.Runs
	for p := range all {
		if why := unable[p].err; why != nil {
			a.WarnOf(fmt.Sprintf("policy %s is left out of the comparison: %v", f.names[p], why))
			continue
		}
		finished = append(finished, all[p])
	}
	study, err := compare.NewAgainst(f.bases, seeds, finished)
	if err == nil {
		study.Estimates = f.unsure.text(f.listed)
	}
	return study, err
}

// draw writes the plots of --plots.
func (f *compareFlags) draw(ctx context.Context, a *cli.App, s *compare.Study) error {
	bars, err := barsOf(s)
	if err != nil {
		return err
	}
	width := max(drawing.Width, vg.Length(len(s.Rows)+1)*1.6*vg.Centimeter)
	if err := drawing.Save(f.plots, "comparison", width, 2.4*drawing.Height, bars...); err != nil {
		return exit.With(exit.IO, err)
	}
	waits, err := waitsOf(s)
	if err != nil {
		return err
	}
	if err := drawing.Save(f.plots, "waits", 1.4*drawing.Width, 1.2*drawing.Height, waits); err != nil {
		return exit.With(exit.IO, err)
	}
	jobs, err := f.jobs(ctx, s.Seeds[0])
	if err != nil {
		return err
	}
	if n, gpus := len(jobs.Jobs), len(f.setup.Cluster.GPUs); n > mostGanttJobs || gpus > mostGanttGPUs {
		a.WarnOf(fmt.Sprintf("--plots: leaving out the figures of jobs on GPUs: got %d jobs and %d GPUs, want at most %d and %d",
			n, gpus, mostGanttJobs, mostGanttGPUs))
		return nil
	}
	own := f.own()
	names := make([]string, len(s.Rows))
	for i, row := range s.Rows {
		names[i] = row.Policy
	}
	files := ganttFiles(names)
	for i, row := range s.Rows {
		r, err := f.play(ctx, own, f.list(0, s.Seeds[0]), row.Policy, s.Seeds[0], jobs, true, nil)
		if err == nil {
			err = drawGantt(filepath.Join(f.plots, files[i]), "Jobs on GPUs, policy "+row.Policy,
				f.setup.Cluster, jobs, r)
		}
		if err != nil {
			own.close()
			return err
		}
	}
	return own.close()
}

// refusal stores the error of the failed list with the lowest index. The error therefore does not depend on the speed
// of the workers.
type refusal struct {
	mutex sync.Mutex
	list  int
	err   error
}

// runs reports whether a list must still run, because neither this list nor an earlier one has failed.
func (r *refusal) runs(list int) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.err == nil || list < r.list
}

func (r *refusal) add(list int, err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.err == nil || list < r.list {
		r.list, r.err = list, err
	}
}

// list returns the name of list i in error messages.
func (f *compareFlags) list(i int, seed uint64) string {
	switch {
	case len(f.traces) > 0:
		return fmt.Sprintf("%s: --trace %s", f.command, f.traces[i])
	case f.listed != nil:
		return f.command
	}
	return fmt.Sprintf("%s: seed %d", f.command, seed)
}

// figures runs one policy on one list of jobs and returns the results.
func (f *compareFlags) figures(ctx context.Context, p *policies, what, name string, seed uint64,
	jobs *scheduler.Workload) (compare.Figures, error) {
	r, err := f.play(ctx, p, what, name, seed, jobs, false, nil)
	if err != nil {
		return compare.Figures{}, err
	}
	return f.judged(jobs, r)
}
