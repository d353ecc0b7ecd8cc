package bucket

import (
	"context"
	"errors"
	"io/fs"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/objects"
)

// Reasons to hide a checkpoint. The name of the hidden manifest ends with the reason.
const (
	Quarantined = "quarantined" // its values may be wrong
	Superseded  = "superseded"  // the run continued from an earlier step
)

// Hide makes the checkpoint of a step incomplete by renaming its manifest. Its other objects remain.
func (f *Folder) Hide(ctx context.Context, step int64, reason string) error {
	if err := f.check(ctx); err != nil {
		return err
	}
	best, err := f.pointer(ctx, bestFile)
	if err != nil {
		return err
	}
	name := f.name.Join(checkpoint.StepName(step), manifestFile)
	text, err := f.client.Read(ctx, name, mostManifest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		kept := objects.Name{Bucket: name.Bucket, Key: name.Key + "." + reason}
		if err := f.client.PutBytes(ctx, kept, text); err != nil {
			return err
		}
		if err := f.client.Delete(ctx, name); err != nil {
			return err
		}
	}
	if best == checkpoint.StepName(step) {
		return f.client.Delete(ctx, f.name.Join(bestFile))
	}
	return nil
}

// Rewind makes the checkpoint of step the newest one, because the run resumes from it. Rewind hides the checkpoints of
// later steps, so that no run can resume from them.
func (f *Folder) Rewind(ctx context.Context, step int64) error {
	steps, _, err := f.complete(ctx)
	if err != nil {
		return err
	}
	latest, err := f.pointer(ctx, latestFile)
	if err != nil {
		return err
	}
	last, ok := checkpoint.StepOf(latest)
	if later := len(steps) > 0 && steps[0] > step; !later && (!ok || last <= step) {
		return nil
	}
	if err := f.check(ctx); err != nil {
		return err
	}
	if err := f.point(ctx, latestFile, step); err != nil { // first, because it hides all later steps atomically
		return err
	}
	for _, s := range steps {
		if s > step {
			if err := f.Hide(ctx, s, Superseded); err != nil {
				return err
			}
		}
	}
	return nil
}
