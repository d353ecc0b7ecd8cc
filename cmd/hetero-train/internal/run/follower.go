package run

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/engine/train"
)

// follow trains on a rank other than rank 0. Such a rank writes no files of the run except a log. It prints the
// progress of the run only if it is the first rank of its machine, or if the user started it by hand.
func (tr *training) follow(ctx context.Context) error {
	path := filepath.Join(tr.rank.Team.Start.LogDir, fmt.Sprintf("rank_%d.log", tr.rank.Team.Place.Rank))
	if file, err := regular.Write(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND); err == nil {
		tr.process.Opts.LogFile.To(tr.logTo(file, path))
	} else { // another machine may not have this folder, so standard error is the log
		tr.process.Opts.LogFile.To(io.Discard)
	}
	options, err := tr.sharedOptions()
	if err != nil {
		return err
	}
	options.Observer = follower{tr.run}
	var screen *observe.Console
	if tr.rank.Team.Speaks() {
		screen = observe.NewConsole(tr.run, tr.process.Opts.LogFile)
		defer screen.Close()
		screen.Begin(nil)
		options.Observer = screen
	}
	if tr.exporter != nil {
		options.Observer = observe.Observers{options.Observer, tr.exporter}
	}
	if err := tr.rank.Team.Ready(ctx); err != nil {
		return err
	}
	tr.looping.Store(true)
	options.Leaving = tr.leaves
	result, err := train.Run(ctx, options)
	tr.tracing.Over(err)
	tr.balancing.End()
	if screen != nil {
		screen.Close()
	}
	interrupted := false
	if err == nil && result.Interrupted {
		err = tr.interruption(ctx, result.Steps)
		interrupted = err != nil
	}
	if screen != nil {
		screen.End(result, err)
	}
	if interrupted {
		return exit.With(exit.Code(err), exit.AlreadyShown(err)) // rank 0 prints the error
	}
	return tr.leaderLost(exit.Classify(ctx, err))
}

// follower is the observer of a rank that prints only warnings.
type follower struct{ run *assembly.Run }

// StepDone implements train.Observer.
func (f follower) StepDone(r *train.StepRecord) {
	if interval := int64(f.run.Process.Cfg.Train.LogInterval); r.Step%interval == 0 || r.Step == r.Total ||
		r.Step == 1 {
		observe.LogBatch(f.run, r)
	}
}

func (follower) EvalDone(train.Evaluation)             {}
func (follower) RolledBack(int64)                      {}
func (follower) Saving()                               {}
func (follower) Saved(checkpoint.Saved, time.Duration) {}
func (f follower) Warn(err error)                      { f.run.Process.Opts.Log.Warn(err.Error()) }
