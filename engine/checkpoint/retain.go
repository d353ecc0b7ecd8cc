package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// retain removes old checkpoints. It keeps the newest Options.Keep ones, the best one, and the checkpoint named newest,
// which was just saved. Damaged checkpoints do not count towards Options.Keep.
func (s *Store) retain(newest string) (removed []string, err error) {
	best, err := readPointer(s.fsys, bestFile)
	if err != nil {
		return nil, fmt.Errorf("find the best checkpoint: %w", err)
	}
	list, err := candidates(s.fsys)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(list, func(c candidate) bool { return c.name == newest })
	kept := 1
	var faults []error
	for _, c := range list[at+1:] {
		if !c.replaced && c.name == best {
			continue
		}
		if !c.replaced && kept < s.keep && s.looksComplete(c) {
			kept++
			continue
		}
		if err := s.remove(c.name); err != nil {
			faults = append(faults, err)
			continue
		}
		removed = append(removed, c.name)
	}
	return removed, errors.Join(faults...)
}

// looksComplete reports whether a checkpoint appears to be complete. It does not read tensors.
func (s *Store) looksComplete(c candidate) bool { return incomplete(s.fsys, c) == nil }

// incomplete returns the reason why a checkpoint is not complete, or nil. It reads only the manifest and the sizes of
// the files.
func incomplete(fsys fileSystem, c candidate) error {
	m, err := readManifest(fsys, c.name, c.name)
	if err != nil {
		return err
	}
	for name, sum := range m.files {
		file, size, err := openIn(fsys, c.name, c.name, name)
		if err != nil {
			return err
		}
		file.Close()
		if size != sum.bytes {
			return corrupt(c.name+"/"+name, "it has %d bytes, want %d", size, sum.bytes)
		}
	}
	return nil
}

// Incomplete returns the reason why the newest checkpoint in a folder is not complete, or nil. It does not read
// tensors, so it does not detect changed bytes.
func Incomplete(root *os.Root) error {
	list, err := candidates(folder{root})
	if err != nil || len(list) == 0 {
		return nil
	}
	return incomplete(folder{root}, list[0])
}

// SetAside hides all checkpoints after the given step from Latest. It moves them into a new folder superseded-1,
// superseded-2, …, which is never removed, and returns their names.
//
// A run that resumes from a checkpoint, or rolls back to one, must call SetAside with the step of this checkpoint
// before it continues. Later checkpoints are damaged, or belong to steps that the run repeats, so Latest must not
// return them. If `best` names one of them, SetAside removes `best`.
func (s *Store) SetAside(step int64) (moved []string, err error) {
	return s.moveAfter(step, supersededPrefix, "")
}

// moveAfter moves the checkpoints after the given step into a new folder. If reason is not empty, the folder also gets
// a file that contains reason.
func (s *Store) moveAfter(step int64, prefix, reason string) (moved []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, err := candidates(s.fsys)
	if err != nil {
		return nil, ioError("list checkpoints", s.dir, err)
	}
	list = slices.DeleteFunc(list, func(c candidate) bool { return c.step <= step })
	if len(list) == 0 {
		return nil, nil
	}
	aside, err := s.freshFolder(prefix)
	if err == nil && reason != "" {
		err = createFile(s.fsys, aside+"/"+reasonFile, []byte(reason+"\n"))
	}
	if err != nil {
		return nil, ioError("move old checkpoints in", s.dir, err)
	}
	if err := s.forgetBest(list); err != nil {
		return nil, ioError("move old checkpoint best in", s.dir, err)
	}
	for _, c := range list {
		if err := s.fsys.Rename(c.name, aside+"/"+c.name); err != nil {
			return moved, ioError("move old checkpoint", filepath.Join(s.dir, c.name), err)
		}
		moved = append(moved, c.name)
	}
	return moved, ioError("move old checkpoints in", s.dir, errors.Join(s.fsys.SyncDir(aside), s.fsys.SyncDir(".")))
}

// forgetBest removes the file `best` if it names a checkpoint of list.
func (s *Store) forgetBest(list []candidate) error {
	best, err := readPointer(s.fsys, bestFile)
	if err == nil && slices.ContainsFunc(list, func(c candidate) bool { return c.name == best }) {
		err = s.fsys.Remove(bestFile)
	}
	return err
}

// freshFolder creates a folder called prefix1, prefix2, …. It uses the first name that does not exist yet.
func (s *Store) freshFolder(prefix string) (string, error) {
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s%d", prefix, n)
		exists, err := s.fsys.Exists(name)
		if err != nil {
			return "", err
		}
		if !exists {
			return name, s.fsys.Mkdir(name)
		}
	}
}
