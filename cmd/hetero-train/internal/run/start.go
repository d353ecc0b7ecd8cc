package run

import (
	"context"
	"path/filepath"
)

// tellFinished sends rank 0's decision whether the run is complete to the other ranks, because only rank 0 has opened
// the run.
func (tr *training) tellFinished(ctx context.Context) error {
	t := tr.Team
	if t == nil {
		return nil
	}
	return t.Tell(ctx, "finished", &t.Finished, func() error {
		t.Finished = tr.Folder.Finished != nil
		return nil
	})
}

// tellStart sends the paths of the run's folders from rank 0 to the other ranks.
func (tr *training) tellStart(ctx context.Context) error {
	t := tr.Team
	if t == nil {
		return nil
	}
	return t.Tell(ctx, "start", &t.Start, func() (err error) {
		if t.Start.LogDir, err = filepath.Abs(tr.Folder.LogDir()); err == nil {
			t.Start.Checkpoints, err = filepath.Abs(tr.Folder.CheckpointDir())
		}
		return err
	})
}
