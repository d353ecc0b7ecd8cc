package certs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// paths returns the paths of two files of a machine or of the authority: its certificate and its key.
func paths(folder, name string) [2]string {
	return [2]string{filepath.Join(folder, name+".pem"), filepath.Join(folder, name+"-key.pem")}
}

// write creates a file. It never overwrites an existing file.
func write(path string, content []byte, mode os.FileMode) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return exit.With(exit.IO, fmt.Errorf("certs: %w", err))
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = exit.With(exit.IO, fmt.Errorf("certs: write %s: %w", path, err))
		}
	}()
	if _, err = f.Write(content); err != nil {
		return err
	}
	return f.Sync()
}
