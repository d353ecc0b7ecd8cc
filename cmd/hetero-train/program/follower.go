package program

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/engine/train"
)

// follow trains as a rank that does not lead: it owns no files but a log. The first rank of a machine shows the run on that machine's terminal, and
// a rank that was started by hand on its own.
func (j *training) follow(ctx context.Context) error {
	if logFile, err := regular.Write(filepath.Join(j.team.start.LogDir, fmt.Sprintf("rank_%d.log", j.team.place.Rank)), os.O_WRONLY|os.O_CREATE|os.O_APPEND); err == nil {
		j.later(logFile.Close)
		j.opts.logFile.To(&logs.File{File: logFile, Screen: j.opts.onScreen})
	} else { // on another machine there may be no such folder: then standard error is the log
		j.opts.logFile.To(io.Discard)
	}
	options, err := j.sharedOptions()
	if err != nil {
		return err
	}
	options.Observer = follower{&j.Run}
	var screen *console
	if j.team.speaks() {
		screen = newConsole(&j.Run, j.opts.logFile)
		defer screen.close()
		screen.begin(nil)
		options.Observer = screen
	}
	if err := j.team.ready(ctx); err != nil {
		return err
	}
	result, err := train.Run(ctx, options)
	j.tracing.over(err)
	j.balancing.end()
	if screen != nil {
		screen.close()
	}
	interrupted := err == nil && result.Interrupted
	if interrupted {
		err = j.interruption(ctx, result.Steps)
	}
	if screen != nil {
		screen.end(result, err)
	}
	if interrupted {
		return exit.With(exit.Code(err), exit.AlreadyShown(err)) // rank 0 says it
	}
	return j.leaderLost(exit.Classify(ctx, err))
}

// speaks reports whether this rank shows the run on its terminal: rank 0, the first rank of every other machine, and a rank that has a terminal of
// its own.
func (t *team) speaks() bool {
	return t.leads() || t.place.OwnOutput || t.group.Members()[t.place.Rank].LocalRank == 0
}

// follower is the observer of a rank that shows nothing of the run but its warnings.
type follower struct{ job *Run }

// StepDone implements train.Observer.
func (f follower) StepDone(r *train.StepRecord) {
	if interval := int64(f.job.cfg.Train.LogInterval); r.Step%interval == 0 || r.Step == r.Total || r.Step == 1 {
		logBatch(f.job, r)
	}
}

func (follower) EvalDone(train.Evaluation)             {}
func (follower) RolledBack(int64)                      {}
func (follower) Saving()                               {}
func (follower) Saved(checkpoint.Saved, time.Duration) {}
func (f follower) Warn(err error)                      { f.job.opts.log.Warn(err.Error()) }
