package run

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/checkpoint/bucket"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/objects"
)

// checkpointsFolder is the name of the folder of checkpoints in the folder of a run, here and in a bucket.
const checkpointsFolder = "checkpoints"

// copies are the checkpoints of a run in a bucket. They implement [experiment.Source].
type copies struct {
	ctx     context.Context
	folder  *bucket.Folder
	log     *slog.Logger
	fetched bool // this process resumes from them
}

// Any implements [experiment.Source].
func (c *copies) Any() (bool, error) {
	steps, err := c.folder.Steps(c.ctx)
	if err != nil {
		return false, fetchError(c.folder.String(), err)
	}
	return len(steps) > 0, nil
}

// Fetch implements [experiment.Source]. It does not fetch checkpoints of another run; [training.openUploads] refuses a
// folder with such checkpoints.
func (c *copies) Fetch(dir string, step int64) (copied bool, err error) {
	id, err := experiment.UploadID(dir)
	if err != nil {
		return false, err
	}
	owner, err := c.folder.Owner(c.ctx)
	if err != nil {
		return false, fetchError(c.folder.String(), err)
	}
	if owner != id && (id != "" || step >= 0) {
		return false, nil
	}
	checkpoints := filepath.Join(dir, checkpointsFolder)
	aside, err := setAside(checkpoints)
	if err == nil && owner != "" && owner == id {
		err = c.hide(aside)
	}
	if err != nil {
		return false, fetchError(c.folder.String(), err)
	}
	steps, err := c.folder.Steps(c.ctx)
	if err != nil {
		return false, fetchError(c.folder.String(), err)
	}
	if len(steps) == 0 || steps[0] <= step {
		return false, nil
	}
	if id == "" {
		if id = owner; id == "" {
			id = bucket.NewRun()
		}
		if err := experiment.StoreUploadID(dir, id); err != nil { // first, because the copies belong to this ID
			return false, err
		}
	}
	var damage []error
	for _, s := range steps {
		if s <= step {
			break
		}
		manifest, err := c.folder.Manifest(c.ctx, s)
		if err != nil {
			return false, fetchError(c.folder.String(), err)
		}
		if was, refused := aside.find(s, manifest); manifest == nil || refused {
			c.log.Info("a checkpoint of the bucket is left out, because this machine has set it aside", "step", s, "in",
				was.path)
			continue
		}
		if err = c.download(s, checkpoints); err == nil {
			c.fetched = true
			return true, nil
		}
		if err = fetchError(c.folder.String(), err); !c.damaged(s, err) {
			return false, err
		}
		damage = append(damage, err)
	}
	if step < 0 {
		return false, errors.Join(damage...) // a run with damaged checkpoints must not silently start at step 0
	}
	return false, nil
}

// damaged reports whether err means that this checkpoint is damaged or missing, and logs such an error. The caller can
// then try an older checkpoint.
func (c *copies) damaged(step int64, err error) bool {
	if !errors.As(err, new(*checkpoint.CorruptError)) && !errors.Is(err, checkpoint.ErrNone) {
		return false
	}
	c.log.Warn("a checkpoint of the bucket is damaged; the program tries the next older one", "step", step, "error",
		err)
	return true
}

func (c *copies) download(step int64, dir string) error {
	c.log.Info("the checkpoint is in the bucket; the program downloads it", "step", step, "from", c.folder.String())
	_, err := c.folder.Download(c.ctx, step, dir)
	return err
}

// hide hides the copies of checkpoints that this machine has moved to quarantine.
func (c *copies) hide(aside asides) error {
	for _, a := range aside {
		if !a.quarantined {
			continue
		}
		manifest, err := c.folder.Manifest(c.ctx, a.step)
		if err == nil && manifest != nil && a.is(a.step, manifest) {
			err = c.folder.Hide(c.ctx, a.step, bucket.Quarantined)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// aside is a checkpoint of this machine that the run must not use.
type aside struct {
	path        string
	step        int64
	manifest    []byte // nil: unreadable
	quarantined bool   // true: its values may be wrong; false: the run continued from an earlier step
}

// is reports whether the copy with this step and manifest is a copy of a. The step alone does not suffice: the run may
// have saved another checkpoint of this step later.
func (a aside) is(step int64, manifest []byte) bool {
	return a.step == step && (a.manifest == nil || bytes.Equal(a.manifest, manifest))
}

type asides []aside

func (all asides) find(step int64, manifest []byte) (aside, bool) {
	for _, a := range all {
		if a.is(step, manifest) {
			return a, true
		}
	}
	return aside{}, false
}

// setAside lists the checkpoints in the subfolders superseded-N and quarantined-N of a folder of checkpoints. It omits
// a checkpoint that the run has later saved again with the same bytes.
func setAside(dir string) (all asides, err error) {
	folders, err := checkpoint.SetAsides(dir)
	if err != nil {
		return nil, err
	}
	newest, any := checkpoint.NewestStep(dir)
	for _, f := range folders {
		for _, name := range f.Checkpoints {
			step, ok := checkpoint.StepOf(name)
			if !ok {
				continue
			}
			a := aside{path: filepath.Join(f.Path, name), step: step, quarantined: f.Reason != ""}
			if a.manifest, err = os.ReadFile(filepath.Join(a.path, "MANIFEST")); err != nil {
				a.manifest = nil
			}
			live, err := os.ReadFile(filepath.Join(dir, name, "MANIFEST"))
			if err == nil && bytes.Equal(live, a.manifest) || a.manifest == nil && any && newest >= step {
				continue
			}
			all = append(all, a)
		}
	}
	return all, nil
}

// fetchCheckpoint downloads the checkpoint that train.resume names, if it is in a bucket. If train.resume is "auto", it
// returns the copies of the run instead. [experiment.Open] then fetches a copy that is newer than the checkpoints on
// this machine.
func (tr *training) fetchCheckpoint(ctx context.Context) (*copies, error) {
	c := tr.process.Cfg
	if objects.Is(c.Train.Resume) {
		path, err := tr.fetchNamed(ctx, c.Train.Resume)
		if err != nil {
			return nil, fetchError(c.Train.Resume, err)
		}
		c.Train.Resume = path
		return nil, nil
	}
	folder, err := tr.uploadFolder()
	if err != nil || folder == nil || c.Train.Resume != experiment.ResumeAuto {
		return nil, err
	}
	return tr.copiesIn(ctx, folder), nil
}

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

func (tr *training) copiesIn(ctx context.Context, folder *bucket.Folder) *copies {
	return &copies{ctx: ctx, folder: folder, log: tr.process.Opts.Log}
}

// fetchNamed downloads a checkpoint to the cache. If name is a folder of checkpoints or of a run, it downloads the
// newest checkpoint in it.
func (tr *training) fetchNamed(ctx context.Context, name string) (path string, err error) {
	name = strings.TrimRight(name, "/")
	at := strings.LastIndexByte(name, '/')
	step, single := checkpoint.StepOf(name[at+1:])
	places := []string{name, name + "/" + checkpointsFolder}
	if single {
		places = []string{name[:at]}
	}
	aside, err := setAside(filepath.Join(tr.process.Cfg.Experiment.OutputDir, tr.process.Cfg.Experiment.Name,
		checkpointsFolder))
	if err != nil {
		return "", err
	}
	cache, err := parts.CacheDir(tr.process.Cfg.Data.CacheDir)
	if err != nil {
		return "", err
	}
	var damage []error
	for _, place := range places {
		folder, err := bucket.Open(place)
		if err != nil {
			return "", exit.With(exit.Usage, err)
		}
		steps := []int64{step}
		if !single {
			if steps, err = folder.Steps(ctx); err != nil {
				return "", err
			}
		}
		key := sha256.Sum256([]byte(place))
		dir := filepath.Join(cache, "downloaded", hex.EncodeToString(key[:8]))
		c := tr.copiesIn(ctx, folder)
		for _, s := range steps {
			manifest, err := folder.Manifest(ctx, s)
			if err != nil {
				return "", err
			}
			if manifest == nil {
				continue
			}
			if a, ok := aside.find(s, manifest); ok && a.quarantined {
				c.log.Warn("a checkpoint of the bucket is left out, because its values may be wrong", "step", s, "in",
					a.path)
				continue
			}
			if err = c.download(s, dir); err == nil {
				tr.resumedFrom = folder.String()
				return filepath.Join(dir, checkpoint.StepName(s)), nil
			}
			if single || !c.damaged(s, err) {
				return "", err
			}
			damage = append(damage, err)
		}
	}
	if len(damage) > 0 {
		return "", errors.Join(damage...)
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
