package experiment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// Replace replaces the contents of the file at path with the output of write. After a failure or a power failure, the
// file contains either the complete old or the complete new contents. If path names a device, a pipe or another file
// that is not regular, Replace returns a *regular.Error, because it would remove this file.
func Replace(path string, write func(io.Writer) error) error {
	if err := Replaceable(path); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := replaceIn(dir, filepath.Base(path), write); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Replaceable returns an error if Replace would refuse the path: a folder, a device or a pipe.
func Replaceable(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return &regular.Error{
			Path: path, Reason: fmt.Sprintf("got %s, want a regular file or a new one", regular.Kind(info.Mode()))}
	}
	return nil
}

// ReplaceText replaces the contents of the file at path with text; see Replace.
func ReplaceText(path string, text []byte) error {
	return Replace(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// replace replaces a file of the run; name is relative to the folder of the run.
func (r *Run) replace(name string, text []byte) error {
	return replaceTextIn(r.root, r.Dir, name, text)
}

// replaceTextIn replaces a file in the folder dir, which is open as root.
func replaceTextIn(root *os.Root, dir, name string, text []byte) error {
	err := replaceIn(root, name, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	return folderError("write", filepath.Join(dir, name), err)
}

// temporarySuffix is the suffix of the name of a file that is not yet complete and will replace another file.
const temporarySuffix = ".tmp"

func replaceIn(root *os.Root, name string, write func(io.Writer) error) (err error) {
	temporary := name + temporarySuffix
	defer func() {
		if err != nil {
			err = errors.Join(err, removeIfThere(root, temporary))
		}
	}()
	file, err := regular.WriteIn(root, temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	if err = write(file); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := root.Rename(temporary, name); err != nil {
		return err
	}
	dir, err := root.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return platform.SyncDir(dir)
}

func removeIfThere(root *os.Root, name string) error {
	if err := root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
