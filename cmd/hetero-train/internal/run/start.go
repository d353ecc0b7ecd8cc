package run

import (
	"context"
	"path/filepath"
)

// sendFinished sends rank 0's decision whether the run is complete to the other ranks, because only rank 0 has opened
// the run.
func (tr *training) sendFinished(ctx context.Context) error {
	t := tr.rank.Team
	if t == nil {
		return nil
	}
	return t.Send(ctx, "finished", &t.Finished, func() error {
		t.Finished = tr.run.Folder.Finished != nil
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
