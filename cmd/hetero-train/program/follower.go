package program

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/train"
)

// follow trains as a rank that does not lead: it owns no files but a log.
func (j *job) follow(ctx context.Context) error {
	if logFile, err := os.OpenFile(filepath.Join(j.team.start.LogDir, fmt.Sprintf("rank_%d.log", j.team.place.Rank)), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err == nil {
		j.later(logFile.Close)
		j.opts.logFile.to(&fileLog{file: logFile, screen: j.opts.onScreen})
	} // on another machine there may be no such folder: then standard error is the log
	options, err := j.sharedOptions()
	if err != nil {
		return err
	}
	options.Observer = follower{j.opts.log}
	if err := j.team.ready(ctx); err != nil {
		return err
	}
	result, err := train.Run(ctx, options)
	j.tracing.over(err)
	j.balancing.end()
	if err == nil && result.Interrupted {
		err = j.interruption(ctx)
		return withCode(exitCode(err), shown{err}) // rank 0 says it
	}
	return err
}

// follower is the observer of a rank that does not lead: the leader shows and records the run.
type follower struct{ log *slog.Logger }

func (follower) StepDone(*train.StepRecord)            {}
func (follower) EvalDone(train.Evaluation)             {}
func (follower) RolledBack(int64)                      {}
func (follower) Saving()                               {}
func (follower) Saved(checkpoint.Saved, time.Duration) {}
func (f follower) Warn(err error)                      { f.log.Warn(err.Error()) }
