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

// carried lists the files in the folder configs that describe the machine and not the run. They are copied to the run
// that replaces the old one, so that profile.gpu_profiles still finds them.
var carried = []string{"gpu_profiles.json", "system_profile.json"}

// maxCarriedBytes exceeds the size of a profile of thousands of ranks.
const maxCarriedBytes = 64 << 20

// logPatterns match the files that a run writes into Options.LogDir, which may contain other files too.
var logPatterns = []string{"train.log", "rank_*", "*.jsonl", "trace.json", "summary.json", "latency_histogram.*"}

// moveAside renames the run's folder to <name>-<n>, n above every existing number, and takes a new folder. If the
// process is killed, the old run remains complete under one of the two names: the folder moves in one rename, together
// with its lock.
func (r *Run) moveAside(output *os.Root) error {
	aside, err := asideName(output, r.Name)
	for err == nil {
		if err := r.moveLogs(aside); err != nil {
			return folderError("move the old logs in", r.logDir, err)
		}
		if err = renameNew(output, r.Name, aside); !errors.Is(err, fs.ErrExist) {
			break
		}
		aside, err = asideName(output, r.Name) // another process has just taken that name
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

// asideName returns name-<n>, with n one above the highest existing number. It shortens name if the result would be too
// long.
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

// moveLogs moves the old run's files in Options.LogDir into a subfolder with the new name of the old run.
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

// copyFile copies one file of the folder configs, if it exists.
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

// holdsFiles reports whether a run's folder contains any file except the lock.
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
		case entry.Name() == lockFile:
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
