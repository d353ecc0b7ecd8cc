package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/checkpoint/bucket"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/objects"
	"github.com/hetero-train/hetero-train/engine/train"
)

const (
	// uploadPatience is the time for which the end of a run waits for the upload of its last checkpoint. A shorter time
	// loses uploads of large models over slow networks.
	uploadPatience = 10 * time.Minute
	// stopPatience replaces uploadPatience after a signal or a failure. Most schedulers kill a job 30 s after SIGTERM.
	stopPatience = 20 * time.Second
	// hidePatience is the longest time that hiding checkpoints in the bucket may take, after the uploads.
	hidePatience = 5 * time.Second
)

// openUploads starts the uploads of checkpoints. It refuses a folder of the bucket with checkpoints of another run,
// because this run would replace them one by one. The caller must call begun when the run's local folder exists.
func (tr *training) openUploads(ctx context.Context) (begun func() error, err error) {
	begun = func() error { return nil }
	folder, err := tr.uploadFolder()
	if err != nil || folder == nil {
		return begun, err
	}
	id := ""
	if !tr.run.Folder.Replaces() {
		if id, err = experiment.UploadID(tr.run.Folder.Dir); err != nil {
			return begun, err
		}
	}
	owner, err := folder.Owner(ctx)
	any := false
	if err == nil {
		any, err = folder.Any(ctx)
	}
	if err != nil {
		return begun, exit.With(exit.IO, fmt.Errorf("checkpoint.upload: %w", err))
	}
	if tr.resume != nil && tr.resumedFrom == folder.String() {
		id = owner // this run continues the run that owns the folder
	} else if any && (owner != id || owner == "") {
		return begun, exit.Usagef("checkpoint.upload: %s has checkpoints of another run: set experiment.name or checkpoint.upload to another name, remove these objects, or resume that run with --resume %s",
			folder, folder)
	}
	if id == "" {
		id = bucket.NewRun()
	}
	if err := folder.Claim(ctx, id, owner); err != nil {
		code := exit.IO
		if errors.As(err, new(*bucket.TakenError)) {
			code = exit.Usage
		}
		return begun, exit.With(code, fmt.Errorf("checkpoint.upload: %w", err))
	}
	if err := tr.matchUploads(ctx, folder); err != nil {
		return begun, exit.With(exit.IO, fmt.Errorf("checkpoint.upload: %w", err))
	}
	return func() error { return experiment.StoreUploadID(tr.run.Folder.Dir, id) }, nil
}

// matchUploads makes the checkpoint from which the run resumes the newest one in the bucket, and starts the uploads.
func (tr *training) matchUploads(ctx context.Context, folder *bucket.Folder) error {
	from := tr.run.Folder.Checkpoint
	if tr.resume != nil && from != nil {
		all, err := setAside(tr.run.Folder.CheckpointDir())
		if err == nil && !tr.run.Folder.Replaces() {
			err = tr.copiesIn(ctx, folder).hide(all)
		}
		if err == nil {
			err = folder.Rewind(ctx, tr.resume.Step)
		}
		if err != nil {
			return err
		}
	}
	tr.uploads = bucket.NewUploader(folder, bucket.Options{Keep: tr.process.Cfg.Checkpoint.Keep,
		Logger: tr.process.Opts.LogOf(logs.ComponentTrainer)})
	if tr.resume == nil || from == nil {
		return nil
	}
	newest, any, err := folder.Newest(ctx)
	if err != nil {
		return err
	}
	there, err := folder.Manifest(ctx, tr.resume.Step)
	if err != nil {
		return err
	}
	here, err := os.ReadFile(filepath.Join(from.Path, "MANIFEST"))
	if err != nil || !any || newest != tr.resume.Step || !bytes.Equal(here, there) {
		tr.uploads.Saved(from.Path) // the earlier process ended before it had uploaded this checkpoint
	}
	return nil
}

// patient returns a context that ends after the duration limit, or after the duration grace since the end of ctx,
// whichever is earlier.
func patient(ctx context.Context, limit, grace time.Duration) (context.Context, context.CancelFunc) {
	late, end := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(grace):
		case <-late.Done():
		}
		end()
	})
	return late, func() {
		stop()
		end()
	}
}

// endUploads waits for the upload of the last checkpoint. The parameter err is the error of the run; the result
// combines it with the error of the upload.
func (tr *training) endUploads(ctx context.Context, err error) error {
	if tr.uploads == nil {
		return err
	}
	all, asideErr := setAside(tr.run.Folder.CheckpointDir())
	tr.uploads.Cancel(func(step int64, manifest []byte) bool {
		_, is := all.find(step, manifest)
		return is
	})
	patience := uploadPatience
	if ctx.Err() != nil || err != nil { // a supervisor or other ranks wait for the end of such a run
		patience = stopPatience
	}
	late, end := patient(ctx, patience, stopPatience)
	defer end()
	notice := time.AfterFunc(time.Second, func() {
		tr.process.Opts.Log.Info("the end of the run waits for the upload of its last checkpoint", "at_most", patience)
	})
	uploadErr := tr.uploads.Close(late)
	notice.Stop()
	if hideErr := errors.Join(asideErr, tr.hideUploads(ctx, all)); hideErr != nil {
		tr.process.Opts.Log.Warn("checkpoints of the bucket may contain wrong values, and cannot be hidden", "error",
			hideErr)
	}
	var s exit.Stopped
	switch {
	case uploadErr == nil:
		return err
	case err != nil:
		tr.process.Opts.Log.Warn("the last checkpoint is not in the bucket", "error", uploadErr)
		return err
	case errors.As(context.Cause(ctx), &s):
		return exit.With(s.Unsaved(), fmt.Errorf("%w: saved on this machine, but: %w", s, uploadErr))
	}
	return exit.With(exit.IO, uploadErr)
}

// hideUploads hides the copies of checkpoints that this machine has moved to quarantine.
func (tr *training) hideUploads(ctx context.Context, all asides) error {
	if len(all) == 0 {
		return nil
	}
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), hidePatience)
	defer end()
	return tr.copiesIn(ctx, tr.uploads.Folder()).hide(all)
}

// uploading is the observer that uploads each saved checkpoint.
type uploading struct{ u *bucket.Uploader }

// Saved implements [train.Observer].
func (o uploading) Saved(s checkpoint.Saved, _ time.Duration) { o.u.Saved(s.Path) }

// RolledBack implements [train.Observer].
func (o uploading) RolledBack(step int64) { o.u.RolledBack(step) }

func (uploading) StepDone(*train.StepRecord) {}

func (uploading) EvalDone(train.Evaluation) {}

func (uploading) Saving() {}

func (uploading) Warn(error) {}

// logTraffic logs the requests to the object storage.
func (tr *training) logTraffic() {
	if t, used := objects.Used(); used {
		tr.process.Opts.Log.Info("requests to the object storage", "requests", t.Requests, "tried_again", t.Retries,
			"received_bytes", t.Received, "sent_bytes", t.Sent, "most_at_once", t.Highest)
	}
}
