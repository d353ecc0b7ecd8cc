package run

import (
	"context"
	"path/filepath"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// sendFinished tells the other ranks whether the run is complete, because only rank 0 has opened the run. For a
// complete run, it also sends the error of faultOfFinished.
func (tr *training) sendFinished(ctx context.Context) error {
	t := tr.rank.Team
	if t == nil {
		return nil
	}
	return t.Send(ctx, "finished", &t.Finished, func() error {
		t.Finished.Run = tr.run.Folder.Finished != nil
		if err := exit.Classify(ctx, faultOfFinished(tr.run.Folder)); err != nil {
			t.Finished.Code, t.Finished.Fault = exit.Code(err), err.Error()
		}
		return nil
	})
}

// sendStart sends the paths of the run's folders from rank 0 to the other ranks.
func (tr *training) sendStart(ctx context.Context) error {
	t := tr.rank.Team
	if t == nil {
		return nil
	}
	return t.Send(ctx, "start", &t.Start, func() (err error) {
		if t.Start.LogDir, err = filepath.Abs(tr.run.Folder.LogDir()); err == nil {
			t.Start.Checkpoints, err = filepath.Abs(tr.run.Folder.CheckpointDir())
		}
		return err
	})
}
