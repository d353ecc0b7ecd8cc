package experiment

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hetero-train/hetero-train/engine/platform"
)

// ClaimName returns a name for a run if the user chose none. The result is name, or <name>-<n> if another process uses
// or has claimed name. ClaimName creates the folder of <name>-<n>. Only one process at a time can claim name. The claim
// lasts until release is called or the process ends. If the system cannot lock folders, ClaimName returns name, and
// Open returns an error if the run is in use.
func ClaimName(outputDir, name string) (claimed string, release func(), err error) {
	none := func() {}
	dir, made, err := lockOutput(outputDir)
	switch {
	case errors.Is(err, platform.ErrLocked):
	case err != nil:
		return name, none, nil // Begin reports that the folder is unusable
	case !inUse(filepath.Join(outputDir, name)):
		return name, func() {
			if made {
				os.Remove(outputDir) // returns an error unless the run was refused before it began
			}
			dir.Close() // read only
		}, nil
	default:
		dir.Close() // read only
	}
	claimed, err = reserve(outputDir, name)
	return claimed, none, err
}

// lockOutput opens and locks the output folder. The result made is true if lockOutput created the folder.
func lockOutput(path string) (dir *os.File, made bool, err error) {
	for {
		_, missing := os.Stat(path)
		made = errors.Is(missing, fs.ErrNotExist)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, false, err
		}
		if dir, err = os.Open(path); errors.Is(err, fs.ErrNotExist) {
			continue // the process that created it has just removed it
		}
		if err == nil {
			err = platform.TryLock(dir)
		}
		if err != nil {
			dir.Close() // read only
			return nil, false, err
		}
		now, err := os.Stat(path)
		locked, bad := dir.Stat()
		if err == nil && bad == nil && os.SameFile(now, locked) {
			return dir, made, nil
		}
		dir.Close() // the locked folder no longer has this path
	}
}

// inUse reports whether a process holds the lock of a run.
func inUse(dir string) bool {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false
	}
	defer root.Close() // read only
	_, held, err := HeldBy(root)
	return err == nil && held != nil && *held
}

// reserve creates the folder <name>-<n>, where n is one more than the largest existing number.
func reserve(outputDir, name string) (string, error) {
	if err := os.MkdirAll(outputDir, 0o755); err != nil {
		return "", folderError("create", outputDir, err)
	}
	output, err := os.OpenRoot(outputDir)
	if err != nil {
		return "", folderError("open", outputDir, err)
	}
	defer output.Close() // read only
	for {
		free, err := asideName(output, name)
		if err == nil {
			err = output.Mkdir(free, 0o755)
		}
		if !errors.Is(err, fs.ErrExist) {
			return free, folderError("create a folder for a run in", outputDir, err)
		}
	}
}
