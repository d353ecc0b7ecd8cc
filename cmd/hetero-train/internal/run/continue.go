package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/rebalance"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/train"
)

// survived extends the error of a run of several ranks: it adds the step that rank 0 has saved after the error.
func (tr *training) survived(result train.Result, err error) error {
	if err == nil || !result.Survived || errors.Is(err, train.ErrFinalSave) {
		return err
	}
	if tr.process.Opts.Reported() {
		return fmt.Errorf("%w; step %d, the last step that all ranks completed, is saved", err, result.Steps)
	}
	return fmt.Errorf("%w; the last step that all ranks completed is saved: the run %s", err,
		tr.process.WayOn(result.Steps))
}

// leaderLost extends the error of a rank that has lost rank 0: it adds the newest checkpoint, because only rank 0 saves
// checkpoints.
func (tr *training) leaderLost(err error) error {
	if err == nil || tr.process.Opts.Reported() || exit.LostRank(err) != 0 && exit.PeerOf(err) != 0 {
		return err
	}
	return fmt.Errorf("%w; %s", err, tr.process.Opts.FromNewest(tr.process.Cfg, tr.rank.Team.Start.Checkpoints))
}

// laterSignal is the longest time for which a rank waits for a signal that another rank has already received. With a
// shorter time, an interrupted run could end with the exit code of a terminated run. With a longer time, a run whose
// signal reached only one rank ends later.
const laterSignal = time.Second

// interruption returns the error, with an exit code, of a run that was saved after a signal. It returns nil if a
// comparison of policies canceled the context.
func (tr *training) interruption(ctx context.Context, step int64) error {
	if errors.Is(context.Cause(ctx), rebalance.ErrCompared) {
		return nil
	}
	var s exit.Stopped
	if !errors.As(context.Cause(ctx), &s) { // another rank received the signal, and this rank may receive it soon
		select {
		case <-ctx.Done():
		case <-time.After(laterSignal):
		}
		if !errors.As(context.Cause(ctx), &s) {
			s = exit.Stopped{}
		}
	}
	if dir := tr.movedFrom(); dir != "" {
		return exit.With(s.Saved(),
			fmt.Errorf("%w: saved, but the folder of the run was moved: move it back to %s, and the run %s", s, dir,
				tr.process.WayOn(step)))
	}
	return exit.With(s.Saved(), fmt.Errorf("%w: saved; the run %s", s, tr.process.WayOn(step)))
}

// movedFrom returns the path of the run's folder if the user has moved the folder away, otherwise "". Saves still reach
// a moved folder.
func (tr *training) movedFrom() string {
	if tr.run.Folder == nil { // only rank 0 has the folder
		return ""
	}
	defer tr.disk.watch.Begin(tr.run.Folder.Dir)()
	if _, err := os.Stat(tr.run.Folder.Dir); !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return tr.run.Folder.Dir
}

// unsaved extends the error of a failed final save: it adds the run's newest checkpoint.
func (tr *training) unsaved(newest string, err error) error {
	if newest == "" || errors.Is(err, checkpoint.ErrFolderGone) {
		return fmt.Errorf("%w; the run has no checkpoint", err)
	}
	step, ok := checkpoint.NewestStep(filepath.Dir(newest))
	if !ok {
		return fmt.Errorf("%w; the newest checkpoint is %s", err, newest)
	}
	return fmt.Errorf("%w; the newest checkpoint is %s; after the cause is removed, the run %s", err, newest,
		tr.process.WayOn(step))
}
