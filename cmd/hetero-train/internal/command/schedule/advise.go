package schedule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue/programs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
)

const adviseLong = `Propose placements for the pending jobs of a real cluster.

The command reads the queue and the nodes with the programs of the cluster: squeue, sinfo and scontrol for Slurm, kubectl for Kubernetes.
A policy then chooses GPUs for each pending job. Without --apply, the command changes nothing.

With --apply, the command places the jobs through the queue system:

  Slurm       scontrol update JobId=N ReqNodeList=NODES; the job then starts only on these nodes; scontrol release N if its owner holds it
  Kubernetes  a suspended batch/v1 Job gets a required node affinity for these nodes, and is resumed

--apply writes each change to a log before it makes the change, and makes at most --changes-per-hour changes. schedule advise undo
reverts the changes of the log.

Only jobs that opt in are placed: in Slurm by a comment with "hetero-train:" (submit them with sbatch --hold, because Slurm itself starts
jobs that fit), in Kubernetes by the label hetero-train/schedule=true. Jobs that an administrator, an owner such as a CronJob, Kueue or a
quota holds stay as they are.

A job may state its kind and its number of steps in Slurm's comment, "hetero-train: kind=KIND; steps=STEPS", or in the annotations
hetero-train/kind and hetero-train/steps. --speeds gives the speeds of kinds: a .json file in the form of Gavel's
simulation_throughputs.json, or a TOML or JSON lines file with the tables gpu_types, kinds and speeds (docs/scheduling.md, "Input
files"). Without a kind or its speeds, the policy treats all GPUs as equally fast for the job.`

const adviseExample = `  hetero-train schedule advise --slurm
  hetero-train schedule advise --slurm --speeds simulation_throughputs.json
  hetero-train schedule advise --slurm --policy rule --apply --changes-per-hour 20
  hetero-train schedule advise undo --slurm
  hetero-train schedule advise --kubernetes --namespace ml --json`

type adviseFlags struct {
	slurm, kubernetes, apply, json bool
	context, namespace             string
	name                           string // name of the policy
	speeds                         string
	log                            string // path of the log of changes
	limit                          int    // largest number of changes per hour
	flags                          *pflag.FlagSet
	policies
}

// usualLimit is the default limit of changes per hour: one per minute. A larger limit places long queues faster, a
// smaller one leaves more time to notice a wrong placement.
const usualLimit = 60

func newAdvise(a *cli.App) *cobra.Command {
	f := &adviseFlags{policies: policies{command: "schedule advise", explain: true, keep: true, warn: warnOnce(a)}}
	cmd := &cobra.Command{Use: "advise", Short: "Propose placements for the queue of Slurm or Kubernetes",
		Long: adviseLong, Example: adviseExample, Args: cli.NoArguments}
	flags := cmd.Flags()
	flags.BoolVar(&f.slurm, "slurm", false, "read the queue of Slurm")
	flags.BoolVar(&f.kubernetes, "kubernetes", false, "read the suspended Jobs of Kubernetes")
	flags.StringVar(&f.name, "policy", defaultPolicy, policyUsage("policy that places the jobs; it must not stop jobs"))
	f.addNetwork(flags)
	flags.StringVar(&f.speeds, "speeds", "",
		"`FILE` with the speeds of kinds of jobs on types of GPUs: .json in Gavel's form, .toml or .jsonl")
	flags.BoolVar(&f.apply, "apply", false, "place the jobs; without it, the command only prints the proposals")
	flags.IntVar(&f.limit, "changes-per-hour", usualLimit, "`N` jobs that --apply may place per hour, over all runs with the same --log")
	addLog(flags, &f.log)
	flags.StringVar(&f.context, "context", "", "`context` of the kubeconfig; default: the current one")
	flags.StringVar(&f.namespace, "namespace", "", "`namespace` of the Jobs; default: all namespaces")
	flags.BoolVar(&f.json, "json", false, "print only one JSON object with the proposals")
	f.flags = flags
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), a) }
	cmd.AddCommand(cli.WithoutConfig(newUndo(a), "the commands of schedule have their own flags"))
	return cmd
}

func (f *adviseFlags) run(ctx context.Context, a *cli.App) (err error) {
	if f.slurm == f.kubernetes {
		return exit.Usagef("schedule advise: want exactly one of --slurm and --kubernetes")
	}
	if f.slurm && (f.context != "" || f.namespace != "") {
		return exit.Usagef("schedule advise: --context and --namespace have no effect without --kubernetes")
	}
	for _, flag := range []string{"changes-per-hour", "log"} {
		if !f.apply && f.flags.Changed(flag) {
			return exit.Usagef("schedule advise: --%s has no effect without --apply", flag)
		}
	}
	if f.limit < 1 || f.limit > 1_000_000 {
		return exit.Usagef("schedule advise: --changes-per-hour: got %d, want 1 to 1000000", f.limit)
	}
	var table jobqueue.Table
	if f.speeds != "" {
		speeds, err := readSpeeds("schedule advise: --speeds", f.speeds)
		if err != nil {
			return err
		}
		table = speeds
	}
	if err := f.checkNetwork(f.name); err != nil {
		return err
	}
	policy, err := f.get(f.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	var log *changes // nil without --apply
	if f.apply {
		if log, err = openChanges(ctx, f.log); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, log.close()) }()
		if done, err := log.rotate(ctx, mostLog, time.Now().UTC()); err != nil {
			return err
		} else if done {
			a.WarnOf(fmt.Sprintf("the log %s has reached %d MiB; its changes are now in %s; to revert them, use advise undo with --log %[3]s",
				log.path, mostLog>>20, rotated(log.path)))
		}
	}
	system, c := clusterOf(f.kubernetes, f.context, f.namespace)
	on := ""
	if f.apply {
		if on, err = c.Cluster(ctx); err != nil {
			return unanswered(ctx, fmt.Errorf("schedule advise: %w", err))
		}
	}
	snapshot, err := c.Read(ctx, float64(time.Now().Unix()))
	if err != nil {
		return unanswered(ctx, fmt.Errorf("schedule advise: %w", err))
	}
	placements, err := jobqueue.Propose(snapshot, policy, table)
	if leavesOut(err) {
		return fmt.Errorf("schedule advise: %w", err)
	}
	if err != nil {
		return exit.Usagef("schedule advise: %w", err)
	}
	if failure := f.failed(policy); failure != nil {
		return exit.With(exit.Device, fmt.Errorf("schedule advise: policy %s: %w", f.name, failure))
	}
	var faults error
	if f.apply {
		faults = f.place(ctx, a, system, on, c, log, placements)
	}
	if err := f.print(a, snapshot, placements); err != nil {
		return err
	}
	return faults
}

// place applies the placements up to the limit per hour. Each change is in the log before it is made.
func (f *adviseFlags) place(ctx context.Context, a *cli.App, system, on string, c cluster, log *changes,
	placements []jobqueue.Placement) error {
	var faults []error
	later := 0
	var next time.Time
	for i := range placements {
		p := &placements[i]
		if len(p.Nodes) == 0 {
			continue
		}
		if ctx.Err() != nil {
			return interrupted(ctx, faults)
		}
		now := time.Now().UTC()
		left, free := log.room(f.limit, now)
		if left == 0 {
			later, next = later+1, free
			continue
		}
		change := c.Change(*p)
		id, err := log.begin(event{Time: now, System: system, On: on, Where: f.context, Policy: f.name,
			Reason: p.Reason, Change: &change})
		if err != nil {
			return errors.Join(append(faults, err)...)
		}
		name, note := applied, ""
		err = c.Apply(ctx, *p)
		if err != nil && ctx.Err() != nil { // the change may have been made: leave the event begins
			return interrupted(ctx, faults)
		}
		if errors.Is(err, programs.ErrNoAnswer) {
			faults = append(faults, exit.With(exit.Communication, fmt.Errorf("schedule advise: job %s: %w; the change may have been made",
				p.Job, err)))
			continue
		}
		if err != nil {
			name, note = failed, err.Error()
			faults = append(faults,
				exit.With(exit.Communication, fmt.Errorf("schedule advise: job %s: %w", p.Job, err)))
		}
		p.Applied = name == applied
		if err := log.end(id, now, name, note); err != nil {
			return errors.Join(append(faults, err)...)
		}
	}
	if later > 0 {
		a.WarnOf(fmt.Sprintf("%s not applied, because --changes-per-hour is %d; the next change is possible at %s",
			show.Count(later, "placement"), f.limit, next.Format(time.RFC3339)))
	}
	return errors.Join(faults...)
}

// advice is the JSON output of the command.
type advice struct {
	System     string               `json:"queue_system"`
	Policy     string               `json:"policy"`
	Placements []jobqueue.Placement `json:"placements"`
}

func (f *adviseFlags) print(a *cli.App, s *jobqueue.Snapshot, placements []jobqueue.Placement) error {
	if f.json {
		return show.JSON(a.Env.Stdout, advice{s.System, f.name, placements})
	}
	var b strings.Builder
	pending := 0
	for _, j := range s.Jobs {
		if j.Phase == jobqueue.Pending {
			pending++
		}
	}
	fmt.Fprintf(&b, "%s: %s, %s with GPUs or known nodes, %s; policy %s\n", s.System, show.Count(len(s.Nodes), "node"),
		show.Count(len(s.Jobs)-pending, "running job"), show.Count(pending, "pending job"), f.name)
	for _, p := range placements {
		// The names come from the queue system and can contain control characters.
		name, id := show.Foreign(p.Name), show.Foreign(p.Job)
		if len(p.Nodes) == 0 {
			fmt.Fprintf(&b, "job %s (%s) waits: %s\n", id, name, show.Foreign(p.Reason))
			continue
		}
		what := "can start on"
		if p.Applied {
			what = "is now restricted to"
		}
		fmt.Fprintf(&b, "job %s (%s) %s %s with %s: %s\n", id, name, what, strings.Join(p.Nodes, ","), gpuText(p.GPUs),
			show.Foreign(p.Reason))
	}
	if !f.apply && slices.ContainsFunc(placements, func(p jobqueue.Placement) bool { return len(p.Nodes) > 0 }) {
		b.WriteString("nothing changed; use --apply to place the jobs\n")
	}
	_, err := io.WriteString(a.Env.Stdout, b.String())
	return err
}

// gpuText lists GPUs, for example "2 t4 + 4 v100".
func gpuText(gpus map[string]int) string {
	var parts []string
	for model, n := range gpus {
		parts = append(parts, fmt.Sprintf("%d %s", n, show.Foreign(model)))
	}
	slices.Sort(parts)
	return strings.Join(parts, " + ")
}
