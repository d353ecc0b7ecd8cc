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

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
)

const undoLong = `Revert the changes that schedule advise --apply made, the newest first.

The command reads the log of changes. Without --apply, it changes nothing and prints what it would do:

  Slurm       holds a job again that advise released (scontrol uhold), and removes its node list (scontrol update ReqNodeList=)
  Kubernetes  suspends the Job again, and removes the node affinity that advise added

It leaves out a job that has started or has ended, that another user holds, or that has another node list or affinity by now, and
states this reason. It leaves out the changes of other clusters. A change is reverted once.

The next schedule advise --apply can place the same job again. To prevent this, first stop a timer that runs it, or remove the comment or
the label of the job.`

const undoExample = `  hetero-train schedule advise undo --slurm
  hetero-train schedule advise undo --slurm --apply
  hetero-train schedule advise undo --kubernetes --job ml/train --apply`

type undoFlags struct {
	slurm, kubernetes, apply, json bool
	context, log                   string
	jobs                           []string
}

func newUndo(a *cli.App) *cobra.Command {
	f := new(undoFlags)
	cmd := &cobra.Command{Use: "undo", Short: "Revert the changes of schedule advise --apply", Long: undoLong,
		Example: undoExample, Args: cli.NoArguments}
	flags := cmd.Flags()
	flags.BoolVar(&f.slurm, "slurm", false, "revert changes of Slurm's jobs")
	flags.BoolVar(&f.kubernetes, "kubernetes", false, "revert changes of Jobs of Kubernetes")
	flags.StringVar(&f.context, "context", "",
		"`context` of the kubeconfig; default: the current one")
	flags.StringSliceVar(&f.jobs, "job", nil, "`ID` of a job, repeatable; default: all jobs of the log")
	addLog(flags, &f.log)
	flags.BoolVar(&f.apply, "apply", false, "revert the changes; without it, the command only prints them")
	flags.BoolVar(&f.json, "json", false, "print only one JSON object with the reversals")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), a) }
	return cmd
}

func (f *undoFlags) run(ctx context.Context, a *cli.App) (err error) {
	if f.slurm == f.kubernetes {
		return exit.Usagef("schedule advise undo: want exactly one of --slurm and --kubernetes")
	}
	if f.slurm && f.context != "" {
		return exit.Usagef("schedule advise undo: --context has no effect without --kubernetes")
	}
	if err := mustExist(f.log); err != nil {
		return err
	}
	var log *changes
	if f.apply {
		log, err = openChanges(ctx, f.log)
	} else {
		log, err = readChanges(f.log)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.close()) }()
	system, c := clusterOf(f.kubernetes, f.context, "")
	on, err := c.Cluster(ctx)
	if err != nil {
		return unanswered(ctx, fmt.Errorf("schedule advise undo: %w", err))
	}
	list, elsewhere := log.open(system, on)
	if elsewhere > 0 {
		a.WarnOf(fmt.Sprintf("the log %s has %s of other clusters, which stay as they are; this cluster is %s",
			log.path, show.Count(elsewhere, "more change"), show.Foreign(on)))
	}
	older, err := log.older(system, on, f.jobs)
	if err != nil {
		a.WarnOf(fmt.Sprintf("the older changes are not known: %v", err))
	}
	for _, id := range f.jobs {
		of := func(l *logged) bool { return l.Change.Job == id }
		if slices.ContainsFunc(list, of) {
			continue
		}
		where := ""
		if slices.ContainsFunc(older, of) {
			where = fmt.Sprintf("; %s has one, so use --log %[1]s", rotated(log.path))
		}
		return exit.Usagef("schedule advise undo: --job %s: the log %s has no change of this job on this cluster that is left to revert%s",
			id, log.path, where)
	}
	if len(older) > 0 {
		a.WarnOf(fmt.Sprintf("%s has %s of this cluster, which stay as they are; to revert them, use advise undo with --log %[1]s",
			rotated(log.path), show.Count(len(older), "older change")))
	}
	reversals, faults := []jobqueue.Reversal{}, []error(nil)
	for _, l := range list {
		if len(f.jobs) > 0 && !slices.Contains(f.jobs, l.Change.Job) {
			continue
		}
		change := *l.Change
		change.Released = change.Released && l.last != failed // failed: the release, the last step, is missing
		r, err := c.Undo(ctx, change, f.apply)
		if err != nil {
			faults = append(faults, fmt.Errorf("schedule advise undo: job %s: %w", l.Change.Job, err))
			if ctx.Err() != nil {
				return interrupted(ctx, faults)
			}
			continue
		}
		reversals = append(reversals, r)
		name := ""
		switch {
		case r.Done:
			name = undone
		case r.Over && f.apply:
			name = over
		}
		if name != "" {
			if err := log.end(l.ID, time.Now().UTC(), name, r.What); err != nil {
				return err
			}
		}
	}
	if len(faults) == 0 || len(reversals) > 0 {
		if err := f.print(a, log.path, reversals); err != nil {
			return err
		}
	}
	return exit.With(exit.Communication, errors.Join(faults...))
}

// mostOver is the largest number of changes with nothing to revert that the text names. A log may contain thousands of
// them: the changes of all jobs that ran.
const mostOver = 10

func (f *undoFlags) print(a *cli.App, path string, reversals []jobqueue.Reversal) error {
	if f.json {
		return show.JSON(a.Env.Stdout, struct {
			Log       string              `json:"log"`
			Reversals []jobqueue.Reversal `json:"reversals"`
		}{path, reversals})
	}
	var b strings.Builder
	if len(reversals) == 0 {
		fmt.Fprintf(&b, "the log %s has no change of this cluster that is left to revert\n", path)
	}
	possible, rest := false, 0
	for _, r := range reversals {
		if r.Over && len(f.jobs) == 0 {
			rest++
			if rest > mostOver {
				continue
			}
		}
		verb := "cannot be reverted"
		switch {
		case r.Done:
			verb = "reverted"
		case r.Possible:
			verb, possible = "can be reverted", true
		case r.Over:
			verb = "needs no reversal"
		}
		fmt.Fprintf(&b, "job %s (%s) %s: %s\n", show.Foreign(r.Job), show.Foreign(r.Name), verb, show.Foreign(r.What))
	}
	if rest > mostOver {
		fmt.Fprintf(&b, "no reversal is needed for %s of the log, whose jobs have started, have changed, or have left the queue\n",
			show.Count(rest-mostOver, "more change"))
	}
	if possible && !f.apply {
		b.WriteString("nothing changed; use --apply to revert the changes\n")
	}
	_, err := io.WriteString(a.Env.Stdout, b.String())
	return err
}
