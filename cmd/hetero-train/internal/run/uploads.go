package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
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
	// stopPatience is the same after a signal. Most schedulers kill a job 30 s after SIGTERM.
	stopPatience = 20 * time.Second
)

// checkpointsFolder is the name of the folder of checkpoints in the folder of a run, here and in a bucket.
const checkpointsFolder = "checkpoints"

// uploadFolder returns the folder of this run's checkpoints in the bucket; nil if checkpoint.upload is empty.
func (tr *training) uploadFolder() (*bucket.Folder, error) {
	c := tr.process.Cfg
	if c.Checkpoint.Upload == "" {
		return nil, nil
	}
	folder, err := bucket.Open(strings.TrimRight(c.Checkpoint.Upload, "/") + "/" + c.Experiment.Name + "/" +
		checkpointsFolder)
	if err != nil {
		return nil, exit.Usagef("checkpoint.upload: %w", err)
	}
	return folder, nil
}

// fetchCheckpoint downloads the checkpoint that train.resume selects, if it is in a bucket. With auto, this is the
// newest checkpoint of the run if it is newer than those on this machine.
func (tr *training) fetchCheckpoint(ctx context.Context) error {
	c := tr.process.Cfg
	if objects.Is(c.Train.Resume) {
		path, err := tr.fetchNamed(ctx, c.Train.Resume)
		if err != nil {
			return fetchError(c.Train.Resume, err)
		}
		c.Train.Resume = path
		return nil
	}
	folder, err := tr.uploadFolder()
	if err != nil || folder == nil || c.Train.Resume != experiment.ResumeAuto {
		return err
	}
	step, ok, err := folder.Newest(ctx)
	if err != nil {
		return fetchError(folder.String(), err)
	}
	dir := filepath.Join(c.Experiment.OutputDir, c.Experiment.Name, checkpointsFolder)
	here, any := checkpoint.NewestStep(dir)
	if !ok || any && here >= step {
		return nil
	}
	return tr.download(ctx, folder, step, dir)
}

func (tr *training) download(ctx context.Context, folder *bucket.Folder, step int64, dir string) error {
	tr.process.Opts.Log.Info("the checkpoint is in the bucket; the program downloads it", "step", step, "from",
		folder.String())
	if _, err := folder.Download(ctx, step, dir); err != nil {
		return fetchError(folder.String(), err)
	}
	return nil
}

// fetchNamed downloads a checkpoint, or the newest one of a folder of checkpoints or of a run, to the cache.
func (tr *training) fetchNamed(ctx context.Context, name string) (path string, err error) {
	name = strings.TrimRight(name, "/")
	at := strings.LastIndexByte(name, '/')
	step, single := checkpoint.StepOf(name[at+1:])
	places := []string{name, name + "/" + checkpointsFolder}
	if single {
		places = []string{name[:at]}
	}
	for _, place := range places {
		folder, err := bucket.Open(place)
		if err != nil {
			return "", exit.With(exit.Usage, err)
		}
		found := single
		if single {
			found, err = folder.Has(ctx, step)
		} else {
			step, found, err = folder.Newest(ctx)
		}
		if err != nil {
			return "", err
		}
		if !found {
			continue
		}
		cache, err := parts.CacheDir(tr.process.Cfg.Data.CacheDir)
		if err != nil {
			return "", err
		}
		key := sha256.Sum256([]byte(place))
		dir := filepath.Join(cache, "downloaded", hex.EncodeToString(key[:8]))
		if err := tr.download(ctx, folder, step, dir); err != nil {
			return "", err
		}
		return filepath.Join(dir, checkpoint.StepName(step)), nil
	}
	return "", fmt.Errorf("%w: no complete checkpoint has this name", checkpoint.ErrNone)
}

// fetchError returns the error of a download with its exit code.
func fetchError(from string, err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.As(err, new(*checkpoint.CorruptError)):
	case errors.Is(err, checkpoint.ErrNone):
		err = exit.With(exit.Usage, err)
	default:
		err = exit.With(exit.IO, err)
	}
	return fmt.Errorf("train.resume: %s: %w", from, err)
}

// openUploads starts the uploads of checkpoints. A run that starts from the beginning refuses a folder with checkpoints
// of another run, which it would replace one by one.
func (tr *training) openUploads(ctx context.Context) error {
	folder, err := tr.uploadFolder()
	if err != nil || folder == nil {
		return err
	}
	if tr.resume == nil {
		_, any, err := folder.Newest(ctx)
		if err != nil {
			return exit.With(exit.IO, fmt.Errorf("checkpoint.upload: %w", err))
		}
		if any {
			return exit.Usagef("checkpoint.upload: %s has checkpoints of another run: set experiment.name or checkpoint.upload to another name, remove these objects, or resume the run with --resume %s",
				folder, folder)
		}
	}
	tr.uploads = bucket.NewUploader(folder, bucket.Options{Keep: tr.process.Cfg.Checkpoint.Keep,
		Logger: tr.process.Opts.LogOf(logs.ComponentTrainer)})
	if tr.resume != nil && tr.run.Folder.Checkpoint != nil {
		has, err := folder.Has(ctx, tr.resume.Step)
		if err != nil {
			return exit.With(exit.IO, fmt.Errorf("checkpoint.upload: %w", err))
		}
		if !has { // the last run ended before the upload
			tr.uploads.Saved(tr.run.Folder.Checkpoint.Path)
		}
	}
	return nil
}

// endUploads waits for the upload of the last checkpoint. It adds its error to err, the error of the run.
func (tr *training) endUploads(ctx context.Context, err error) error {
	if tr.uploads == nil {
		return err
	}
	patience := uploadPatience
	if ctx.Err() != nil {
		patience = stopPatience
	}
	late, end := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer end()
	notice := time.AfterFunc(time.Second, func() {
		tr.process.Opts.Log.Info("the end of the run waits for the upload of its last checkpoint", "at_most", patience)
	})
	uploadErr := tr.uploads.Close(late)
	notice.Stop()
	if hideErr := tr.hideUploads(late); hideErr != nil {
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
func (tr *training) hideUploads(ctx context.Context) error {
	all, err := checkpoint.Quarantined(tr.run.Folder.CheckpointDir())
	if err != nil || len(all) == 0 {
		return err
	}
	folder, err := tr.uploadFolder()
	if err != nil {
		return err
	}
	for _, q := range all {
		for _, name := range q.Checkpoints {
			step, ok := checkpoint.StepOf(name)
			if here, any := checkpoint.NewestStep(tr.run.Folder.CheckpointDir()); !ok || any && here >= step {
				continue // the run has passed this step again
			}
			if err := folder.Hide(ctx, step); err != nil {
				return err
			}
		}
	}
	return nil
}

// uploading is the observer that uploads each saved checkpoint.
type uploading struct{ u *bucket.Uploader }

// Saved implements [train.Observer].
func (o uploading) Saved(s checkpoint.Saved, _ time.Duration) { o.u.Saved(s.Path) }

func (uploading) StepDone(*train.StepRecord) {}
func (uploading) EvalDone(train.Evaluation)  {}
func (uploading) RolledBack(int64)           {}
func (uploading) Saving()                    {}
func (uploading) Warn(error)                 {}

// logTraffic logs the requests to the object storage.
func (tr *training) logTraffic() {
	if t, used := objects.Used(); used {
		tr.process.Opts.Log.Info("requests to the object storage", "requests", t.Requests, "tried_again", t.Retries,
			"received_bytes", t.Received, "sent_bytes", t.Sent, "most_at_once", t.Highest)
	}
}
