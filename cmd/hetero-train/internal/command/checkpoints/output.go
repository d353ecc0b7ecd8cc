package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// checkFolder returns an error if a folder is not empty.
func checkFolder(path string) error {
	if path == "" {
		return errors.New("want a .safetensors file or a folder to write")
	}
	entries, err := os.ReadDir(path)
	if err == nil && len(entries) > 0 {
		return fmt.Errorf("the folder %s is not empty", path)
	}
	if parent := filepath.Dir(path); !parts.IsFolder(parent) {
		return fmt.Errorf("there is no folder %s", parent)
	}
	return ignoreMissing(err)
}

// checkOutput returns an error for an unusable output path. It is called before any input is read.
func checkOutput(path string, force bool) error {
	if filepath.Ext(path) != ".safetensors" {
		return fmt.Errorf("got %q, want a name that ends in .safetensors", path)
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", path)
	case err == nil && !force:
		return fmt.Errorf("%s exists: replace it with --force", path)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	if dir := filepath.Dir(path); !parts.IsFolder(dir) {
		return fmt.Errorf("there is no folder %s", dir)
	}
	return nil
}

// writeTensors writes a safetensors file. At any moment, path names either the previous file or the complete new file.
func writeTensors(ctx context.Context, path string, tensors []checkpoint.Tensor, metadata map[string]string) (
	err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return exit.With(exit.FolderCode(err), err)
	}
	defer func() {
		if err != nil {
			err = exit.With(exit.IO,
				errors.Join(fmt.Errorf("write %s: %w", path, err), ignoreMissing(os.Remove(f.Name()))))
		}
	}()
	err = checkpoint.Write(stoppable{ctx, f}, tensors, metadata)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// stoppable is a writer that fails after its context has ended.
type stoppable struct {
	ctx context.Context
	io.Writer
}

// Write implements io.Writer.
func (s stoppable) Write(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.Writer.Write(p)
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
