package checkpoint

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

const (
	quarantinePrefix = "quarantined-"
	supersededPrefix = "superseded-"
	reasonFile       = "reason.txt"
	mostReasonBytes  = 64 << 10
)

// Quarantine is a folder of checkpoints that must not be used, although they are not damaged.
type Quarantine struct {
	Path        string   `json:"path"`
	Reason      string   `json:"reason"`
	Checkpoints []string `json:"checkpoints"` // names of the checkpoints, newest first
}

// Quarantine hides all checkpoints after the given step from Latest, because they may contain wrong values. It moves
// them into a new folder quarantined-1, quarantined-2, …, together with a file that contains the reason, and returns
// their names. The folder is never removed. For its checkpoints, Load and Verify return an error with the reason. If
// `best` names one of them, Quarantine removes `best`.
func (s *Store) Quarantine(step int64, reason string) (moved []string, err error) {
	return s.moveAfter(step, quarantinePrefix, reason)
}

// Quarantined lists the folders in dir that Store.Quarantine created. Error: *IOError.
func Quarantined(dir string) ([]Quarantine, error) {
	all, err := SetAsides(dir)
	return slices.DeleteFunc(all, func(q Quarantine) bool { return q.Reason == "" }), err
}

// SetAsides lists the folders in dir that Store.SetAside and Store.Quarantine created. The reason of a folder of
// Store.SetAside is "". If dir does not exist, the list is empty. Error: *IOError.
func SetAsides(dir string) ([]Quarantine, error) {
	fsys, err := openFolder(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, ioError("open checkpoints", dir, err)
	}
	defer fsys.root.Close()
	names, err := fsys.ReadDir(".")
	if err != nil {
		return nil, ioError("list checkpoints", dir, err)
	}
	slices.Sort(names)
	var all []Quarantine
	for _, name := range names {
		path := filepath.Join(dir, name)
		reason := ""
		switch {
		case strings.HasPrefix(name, quarantinePrefix):
			if reason, err = reasonIn(fsys, name); err != nil {
				return nil, ioError("read the reason in", path, err)
			}
			reason = cmp.Or(reason, "unknown reason")
		case !strings.HasPrefix(name, supersededPrefix):
			continue
		}
		checkpoints, err := List(path)
		if err != nil {
			return nil, err
		}
		all = append(all, Quarantine{Path: path, Reason: reason, Checkpoints: checkpoints})
	}
	return all, nil
}

// reasonIn returns the reason of a quarantine, or "unknown reason" if its file is missing. The parameter name is the
// quarantine folder.
func reasonIn(fsys fileSystem, name string) (string, error) {
	text, err := readText(fsys, name+"/"+reasonFile, mostReasonBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return "unknown reason", nil
	}
	return text, err
}

// refuseQuarantined returns a CorruptError if path is a quarantine folder, or a checkpoint in one.
func refuseQuarantined(path string) error {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil // the caller reports that the path cannot be opened
	}
	for _, dir := range []string{absolute, filepath.Dir(absolute)} {
		if !strings.HasPrefix(filepath.Base(dir), quarantinePrefix) {
			continue
		}
		fsys, err := openFolder(dir)
		if err != nil {
			return nil
		}
		defer fsys.root.Close()
		exists, err := fsys.Exists(reasonFile)
		if err != nil || !exists {
			return nil // a folder that the user created
		}
		reason, err := reasonIn(fsys, ".")
		if err != nil {
			return ioError("read the reason in", dir, err)
		}
		return corrupt(path, "it is quarantined, because its values may be wrong: %s", reason)
	}
	return nil
}
