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

// Named resolves a file that names a checkpoint of its folder (`latest`, `best`). It returns every other path
// unchanged.
func Named(path string) string {
	name, err := regular.Read(path, maxNameBytes)
	if target := strings.TrimSpace(string(name)); err == nil && ValidName(target) {
		return filepath.Join(filepath.Dir(path), target)
	}
	return path
}

// loadFrom opens the checkpoint that path denotes, and reports whether it belongs to this run.
func (r *Run) loadFrom(path string) (own bool, err error) {
	if r.Checkpoint, r.Skipped, err = FindCheckpoint(path); err != nil {
		return false, &ResumeError{Path: path, Err: err}
	}
	return isWithin(r.Checkpoint.Path, r.Dir)
}

// Settings returns the text of the last settings of the run that contains a checkpoint, or "" if there are none.
// Checkpoints themselves may lack these settings.
func Settings(checkpointPath string) (string, error) {
	path := filepath.Join(filepath.Dir(filepath.Dir(checkpointPath)), configsFolder, resolvedFile)
	text, err := regular.Read(path, mostSettingsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", folderError("read", path, err)
	}
	return string(text), nil
}

// FindCheckpoint opens the checkpoint that path denotes. path is a checkpoint's own folder, a file that names one
// (`latest`, `best`), a folder of checkpoints or a run's folder. From the latter two it takes the newest valid
// checkpoint and lists the skipped ones. Errors: those of package checkpoint, including checkpoint.ErrNone;
// fs.ErrNotExist.
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

// CheckpointsIn returns the folder of checkpoints in a run's folder, or path itself if it is not a run's folder.
func CheckpointsIn(path string) string {
	if dir := filepath.Join(path, checkpointsFolder); exists(dir) {
		return dir
	}
	return path
}

// loadOne loads a single checkpoint. A folder without any file of a checkpoint is a mistake of the user, not damage.
func loadOne(path string) (*checkpoint.Checkpoint, error) {
	if !IsCheckpoint(path) {
		return nil, fmt.Errorf("%w: neither a checkpoint nor a folder of checkpoints", checkpoint.ErrNone)
	}
	return checkpoint.Load(path)
}

// IsCheckpoint reports whether the folder path contains a file of a checkpoint, valid or not.
func IsCheckpoint(path string) bool {
	return exists(filepath.Join(path, "MANIFEST")) || exists(filepath.Join(path, "state.json"))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// isWithin follows symbolic links on both sides. A run's folder that does not exist contains nothing.
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
