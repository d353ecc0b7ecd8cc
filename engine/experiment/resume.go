package experiment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// Named returns the path of the checkpoint that is named in a file (`latest`, `best`). It returns every other path
// unchanged.
func Named(path string) string {
	name, err := regular.Read(path, maxNameBytes)
	if target := strings.TrimSpace(string(name)); err == nil && ValidName(target) {
		return filepath.Join(filepath.Dir(path), target)
	}
	return path
}

// loadFrom opens the checkpoint at path, and reports whether the checkpoint belongs to this run.
func (r *Run) loadFrom(path string) (own bool, err error) {
	if r.Checkpoint, r.Skipped, err = FindCheckpoint(path); err != nil {
		return false, &ResumeError{Path: path, Err: err}
	}
	return isWithin(r.Checkpoint.Path, r.Dir)
}

// FindCheckpoint opens the checkpoint that path denotes. It accepts a checkpoint folder, a file that names a checkpoint
// (`latest`, `best`), a folder of checkpoints, or the folder of a run. In the last two cases, FindCheckpoint opens the
// newest valid checkpoint and returns the newer ones that it skipped. Errors: those of package checkpoint, including
// checkpoint.ErrNone; fs.ErrNotExist.
func FindCheckpoint(path string) (*checkpoint.Checkpoint, []checkpoint.Skipped, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, nil, err
	}
	if filepath.Base(path) == "best" {
		c, err := checkpoint.LoadBest(filepath.Dir(path))
		return c, nil, err
	}
	path = Named(path)
	c, skipped, err := checkpoint.Latest(CheckpointsIn(path))
	if errors.Is(err, checkpoint.ErrNone) {
		c, err = loadOne(path)
	}
	if err != nil {
		return nil, nil, err
	}
	return c, skipped, nil
}

// CheckpointsIn returns the folder of checkpoints in the folder of a run. If path is not the folder of a run, it
// returns path.
func CheckpointsIn(path string) string {
	if dir := filepath.Join(path, checkpointsFolder); exists(dir) {
		return dir
	}
	return path
}

// loadOne loads a single checkpoint. A folder without any file of a checkpoint counts as a mistake of the user, not as
// damage.
func loadOne(path string) (*checkpoint.Checkpoint, error) {
	if !IsCheckpoint(path) {
		return nil, fmt.Errorf("%w: neither a checkpoint nor a folder of checkpoints", checkpoint.ErrNone)
	}
	return checkpoint.Load(path)
}

// IsCheckpoint reports whether the folder at path contains a file of a checkpoint. The checkpoint may be damaged.
func IsCheckpoint(path string) bool {
	return exists(filepath.Join(path, "MANIFEST")) || exists(filepath.Join(path, "state.json"))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// isWithin reports whether path is within dir, after following symbolic links in both. If dir does not exist, it
// contains nothing.
func isWithin(path, dir string) (bool, error) {
	dir, err := realPath(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, &ResumeError{Path: path, Err: err}
	}
	if path, err = realPath(path); err != nil {
		return false, &ResumeError{Path: path, Err: err}
	}
	return strings.HasPrefix(path, dir+string(filepath.Separator)), nil
}

func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}
