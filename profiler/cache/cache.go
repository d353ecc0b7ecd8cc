// Package cache stores figures that a later run need not measure again: one JSON file per key, written atomically.
//
//	folder := cache.Folder{Dir: dir, MaxBytes: 1 << 20}
//	path, found, err := folder.Load(cache.Name(key), &figures)
//	err = folder.Store(cache.Name(key), figures)
//
// A cache can be deleted safely. The stored value should contain its key, because a file name is only a hash, and the
// version of its format. An error of Load names the file; the caller measures again and stores.
package cache

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hetero-train/hetero-train/engine/regular"
)

// Folder is a cache. The first Store creates the folder.
type Folder struct {
	Dir      string
	MaxBytes int64 // of a file that Load accepts
}

// Name returns the file name for a key.
func Name(key string) string { return fmt.Sprintf("%.12x.json", sha256.Sum256([]byte(key))) }

// Load reads a file into v. It returns the file's path, and false if there is no such file.
func (f Folder) Load(name string, v any) (path string, found bool, err error) {
	path = filepath.Join(f.Dir, name)
	text, err := regular.Read(path, f.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return path, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return path, true, fmt.Errorf("%s: %w", path, err)
	}
	return path, true, nil
}

// Store replaces a file by v. It does not sync the folder: a lost file is measured again.
func (f Folder) Store(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.Dir, 0o755); err != nil {
		return err
	}
	return Replace(filepath.Join(f.Dir, name), append(text, '\n'), 0o600)
}

// Replace writes a file with the given permissions so that a reader finds either its old or its new content, also
// after a crash. It does not sync the folder.
func Replace(path string, content []byte, mode fs.FileMode) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temporary.Name()))
		}
	}()
	_, err = temporary.Write(content)
	if err = errors.Join(err, temporary.Chmod(mode), temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}
