package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data/filelock"
	"github.com/hetero-train/hetero-train/engine/objects"
	"github.com/hetero-train/hetero-train/engine/platform"
)

const (
	readBytes   = 8 << 20
	readsAtOnce = 8
	// lockFile is a hidden file in the folder of checkpoints. Each download locks it. Package checkpoint ignores hidden
	// names.
	lockFile = ".download.lock"
)

// Download copies the checkpoint of a step from the bucket to dir, a local folder of checkpoints. It returns the path
// of the copy. It verifies all bytes with the hashes of the manifest before the checkpoint appears in dir. If dir has a
// different checkpoint of this step, Download replaces it. If dir already has the same checkpoint, Download only
// verifies it. Processes that download to the same folder wait for each other.
func (f *Folder) Download(ctx context.Context, step int64, dir string) (path string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := filelock.Acquire(ctx, filepath.Join(dir, lockFile))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	name := checkpoint.StepName(step)
	from := f.name.Join(name)
	path = filepath.Join(dir, name)
	if same, err := f.hasCopy(ctx, step, path); same || err != nil {
		return path, err
	}
	_, all, err := f.complete(ctx)
	if err != nil {
		return "", err
	}
	if len(all[step]) == 0 {
		return "", fmt.Errorf("%s: %w", from, checkpoint.ErrNone)
	}
	if err := removeUnfinished(dir); err != nil {
		return "", err
	}
	hidden, err := os.MkdirTemp(dir, checkpoint.Unfinished(name)+"-*")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(hidden, 0o755); err != nil { // MkdirTemp gives other users no access
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(hidden))
		}
	}()
	root, err := os.OpenRoot(hidden)
	if err != nil {
		return "", err
	}
	defer root.Close()
	for _, o := range all[step] {
		file := strings.TrimPrefix(o.Name.Key, from.Key+"/")
		if strings.ContainsAny(file, `/\`) || !filepath.IsLocal(file) {
			return "", fmt.Errorf("%s: got an object %.100q, want the files of a checkpoint only", from, file)
		}
		if strings.HasPrefix(file, manifestFile+".") {
			continue // manifest of an earlier, hidden checkpoint of this step
		}
		if err := f.download(ctx, o, root, file); err != nil {
			return "", err
		}
	}
	checked, err := checkpoint.Load(hidden) // compares the hashes
	if err != nil {
		return "", err
	}
	if err := checked.Close(); err != nil {
		return "", err
	}
	if err := os.RemoveAll(path); err != nil {
		return "", err
	}
	if err := errors.Join(platform.SyncFolder(hidden), os.Rename(hidden, path)); err != nil {
		return "", err
	}
	return path, platform.SyncFolder(dir)
}

func (f *Folder) download(ctx context.Context, o objects.Info, root *os.Root, name string) (err error) {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := f.client.ReadAll(ctx, o, readBytes, readsAtOnce, file); err != nil {
		return err
	}
	return file.Sync()
}

// hasCopy reports whether path is a valid copy of the checkpoint of a step.
func (f *Folder) hasCopy(ctx context.Context, step int64, path string) (bool, error) {
	here, err := os.ReadFile(filepath.Join(path, manifestFile))
	if err != nil {
		return false, nil // the copy is missing or damaged
	}
	there, err := f.Manifest(ctx, step)
	if err != nil || there == nil || !bytes.Equal(here, there) {
		return false, err
	}
	c, err := checkpoint.Load(path)
	if err != nil {
		return false, nil // damaged
	}
	return true, c.Close()
}

// removeUnfinished removes files that an earlier process left when it was killed. The caller must hold the lock.
func removeUnfinished(dir string) error {
	left, err := filepath.Glob(filepath.Join(escape(dir), checkpoint.Unfinished("*")))
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// escape returns a pattern that matches only path.
func escape(path string) string {
	return strings.NewReplacer("*", "\\*", "?", "\\?", "[", "\\[").Replace(path)
}
