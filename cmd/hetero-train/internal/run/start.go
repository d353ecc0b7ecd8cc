package run

import (
	"context"
	"path/filepath"
)

// tellFinished lets rank 0, which has opened the run, say whether there is anything left to do.
func (j *training) tellFinished(ctx context.Context) error {
	t := j.Team
	if t == nil {
		return nil
	}
	return t.Tell(ctx, "finished", &t.Finished, func() error {
		t.Finished = j.Folder.Finished != nil
		return nil
	})
}

// tellStart lets rank 0, which has begun the run, say where its files are.
func (j *training) tellStart(ctx context.Context) error {
	t := j.Team
	if t == nil {
		return nil
	}
	return t.Tell(ctx, "start", &t.Start, func() (err error) {
		if t.Start.LogDir, err = filepath.Abs(j.Folder.LogDir()); err == nil {
			t.Start.Checkpoints, err = filepath.Abs(j.Folder.CheckpointDir())
		}
		return err
	})
}
