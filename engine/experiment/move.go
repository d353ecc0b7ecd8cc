package experiment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/regular"
)

// carried lists the files of the folder configs that describe the machine, not the run. They are copied to the run
// that replaces the old one, so that profile.gpu_profiles still refers to an existing file.
var carried = []string{"gpu_profiles.json", "system_profile.json"}

// maxCarriedBytes is larger than a profile with thousands of ranks.
const maxCarriedBytes = 64 << 20

// logPatterns match the files that a run writes to Options.LogDir. This folder may also contain other files.
var logPatterns = []string{"train.log", "rank_*", "*.jsonl", "trace.json", "summary.json", "summary.previous.json",
	"memory.json",
	"latency_histogram.*",
	"curves.csv", "balance_compare.json", "mlflow_state.json"}

// moveAside renames the folder of the run to <name>-<n> and creates a new folder. n is larger than all existing
// numbers. A single rename moves the folder together with its lock. Therefore, if the process is killed, the old run
// remains complete under one of the two names.
func (r *Run) moveAside(output *os.Root) error {
	aside, err := asideName(output, r.Name)
	for err == nil {
		if err := r.moveLogs(aside); err != nil {
			return folderError("move the old logs in", r.logDir, err)
		}
		if err = renameNew(output, r.Name, aside); !errors.Is(err, fs.ErrExist) {
			break
		}
		aside, err = asideName(output, r.Name) // another process has just used this name
	}
	if err != nil {
		return folderError("move aside", r.Dir, err)
	}
	r.MovedTo = filepath.Join(output.Name(), aside)
	oldLock, old := r.lock, r.root
	defer oldLock.Close()
	defer old.Close()
	r.lock, r.root = nil, nil
	if err := r.takeNew(output); err != nil {
		return err
	}
	for _, name := range carried {
		if err := copyFile(old, r.root, name); err != nil {
			r.Warnings = append(r.Warnings, fmt.Sprintf("copy %s from %s: %v", name, r.MovedTo, err))
		}
	}
	return nil
}

// asideName returns name-<n>. n is one more than the largest existing number. If the result would be too long,
// asideName shortens name.
func asideName(output *os.Root, name string) (string, error) {
	dir, err := output.Open(".")
	if err != nil {
		return "", err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return "", err
	}
	candidate := func(n int) string {
		suffix := fmt.Sprintf("-%d", n)
		return name[:min(len(name), maxNameBytes-len(suffix))] + suffix
	}
	free := 1
	for _, other := range names {
		n, err := strconv.Atoi(other[strings.LastIndexByte(other, '-')+1:])
		if err == nil && n >= free && n < 1<<30 && candidate(n) == other {
			free = n + 1
		}
	}
	return candidate(free), nil
}

// moveLogs moves the files of the old run in Options.LogDir to a subfolder with the new name of the old run.
func (r *Run) moveLogs(aside string) error {
	if r.logDir == "" {
		return nil
	}
	dir, err := os.OpenRoot(r.logDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !isLog(entry) {
			continue
		}
		if err := dir.MkdirAll(aside, 0o755); err != nil {
			return err
		}
		if err := dir.Rename(entry.Name(), filepath.Join(aside, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func isLog(entry fs.DirEntry) bool { return entry.Type().IsRegular() && isLogName(entry.Name()) }

func isLogName(name string) bool {
	for _, pattern := range logPatterns {
		if match, _ := filepath.Match(pattern, name); match {
			return true
		}
	}
	return false
}

// copyFile copies a file of the folder configs, if the file exists.
func copyFile(from, to *os.Root, name string) error {
	path := filepath.Join(configsFolder, name)
	in, info, err := regular.OpenIn(from, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	if info.Size() > maxCarriedBytes {
		return fmt.Errorf("got %d bytes, want at most %d", info.Size(), maxCarriedBytes)
	}
	if err := to.MkdirAll(configsFolder, 0o755); err != nil {
		return err
	}
	return replaceIn(to, path, func(w io.Writer) error {
		_, err := io.Copy(w, io.LimitReader(in, maxCarriedBytes))
		return err
	})
}

// holdsFiles reports whether the folder of a run contains any file except the lock file.
func holdsFiles(root *os.Root, name string) (bool, error) {
	dir, err := root.Open(name)
	if err != nil {
		return false, err
	}
	entries, err := dir.ReadDir(-1)
	dir.Close()
	if err != nil {
		return false, err
	}
	for _, entry := range entries {
		switch {
		case entry.Name() == lockFile, entry.Name() == startFile, entry.Name() == startFile+temporarySuffix:
		case !entry.IsDir():
			return true, nil
		default:
			if used, err := holdsFiles(root, filepath.Join(name, entry.Name())); used || err != nil {
				return used, err
			}
		}
	}
	return false, nil
}
