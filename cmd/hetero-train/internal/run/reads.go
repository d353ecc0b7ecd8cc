package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data/stored"
	"github.com/hetero-train/hetero-train/engine/train"
)

// readGrace is the time after a signal for which the step of a run may wait for objects of S3. A longer time leaves
// less of the 30 s after which most schedulers kill a job. A shorter time ends steps that a slow server would complete.
const readGrace = 8 * time.Second

var errReadsEnded = fmt.Errorf("a signal ended the run while it waited for objects: %w", context.Canceled)

// endReads arranges that a signal ends the requests for data: in the training loop after readGrace, otherwise
// immediately. Without endReads, failed requests could be retried for minutes. The caller must call release at the end
// of the run.
func (tr *training) endReads(ctx context.Context) (release func()) {
	within, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stored.Within(within)
	stop := context.AfterFunc(ctx, func() {
		if tr.looping.Load() { // give the step time to finish
			select {
			case <-time.After(readGrace):
			case <-within.Done():
			}
		}
		end(errReadsEnded)
	})
	return func() {
		stop()
		end(nil)
		stored.Within(nil)
	}
}

// stoppedReading returns the error of a run that a signal ended while it waited for objects, and all other errors
// unchanged.
func (tr *training) stoppedReading(ctx context.Context, result train.Result, err error) error {
	var s exit.Stopped
	if !errors.Is(err, errReadsEnded) || errors.Is(err, train.ErrFinalSave) || !errors.As(context.Cause(ctx), &s) {
		return err
	}
	step, ok := checkpoint.StepOf(filepath.Base(newest(tr.run, result)))
	if result.Steps == 0 || ok && step == result.Steps {
		return exit.With(s.Saved(), fmt.Errorf("%w, while the run waited for objects", s))
	}
	return exit.With(s.Unsaved(), fmt.Errorf("%w, while the run waited for objects; the steps after the newest checkpoint are not saved: %w",
		s, err))
}
