// Package cache stores measured values, so that later runs need not repeat the measurements. Each key has one JSON
// file, which is written atomically.
//
//	folder := cache.Folder{Dir: dir, MaxBytes: 1 << 20}
//	path, found, err := folder.Load(cache.Name(key), &figures)
//	err = folder.Store(cache.Name(key), figures)
//
// A cache can be deleted at any time. The stored value should contain the version of its format. It should also contain
// its key, because the file name is only a hash. If Load fails, the error contains the path of the file; the caller
// should then measure and store the value again.
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

// Folder is the folder of a cache. The first Store creates it.
type Folder struct {
	Dir      string
	MaxBytes int64 // largest size of a file that Load accepts, in bytes
}

// Name returns the file name of a key.
func Name(key string) string { return fmt.Sprintf("%.12x.json", sha256.Sum256([]byte(key))) }

// Load reads a value into v. It returns the path of the file, and found is false if the file does not exist.
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

// Store replaces the value in a file by v. It does not sync the folder, because a lost value can be measured again.
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

// Replace writes a file with the given permissions. A reader finds either the complete old or the complete new
// contents, even after a crash. Replace does not sync the folder.
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
