package experiment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	resolvedFile = "resolved.toml"
	versionFile  = "version.txt"
)

// PreviousConfig is the text of configs/resolved.toml, "" where the run has none yet.
func (r *Run) PreviousConfig() (string, error) {
	text, err := r.root.ReadFile(filepath.Join(configsFolder, resolvedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), folderError("read", filepath.Join(r.ConfigDir(), resolvedFile), err)
}

// StoreConfig writes the resolved settings (TOML) and the program's version. Settings that differ from the
// stored ones do not overwrite them: those are renamed to resolved.1.toml, resolved.2.toml, …
func (r *Run) StoreConfig(resolved, version string) error {
	previous, err := r.PreviousConfig()
	if err != nil {
		return err
	}
	if previous != "" && previous != resolved {
		if err := r.keepPreviousConfig(); err != nil {
			return folderError("keep the earlier settings in", r.ConfigDir(), err)
		}
	}
	if previous != resolved {
		if err := r.replace(filepath.Join(configsFolder, resolvedFile), []byte(resolved)); err != nil {
			return err
		}
	}
	return r.replace(filepath.Join(configsFolder, versionFile), []byte(version+"\n"))
}

func (r *Run) keepPreviousConfig() error {
	for n := 1; ; n++ {
		name := filepath.Join(configsFolder, fmt.Sprintf("resolved.%d.toml", n))
		_, err := r.root.Lstat(name)
		if err == nil {
			continue
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return r.root.Rename(filepath.Join(configsFolder, resolvedFile), name)
	}
}

// replace makes the file name, relative to the run's folder, hold text: atomically and durably.
func (r *Run) replace(name string, text []byte) (err error) {
	temporary := name + ".tmp"
	defer func() {
		if err != nil {
			err = errors.Join(folderError("write", filepath.Join(r.Dir, name), err), r.removeIfThere(temporary))
		}
	}()
	file, err := r.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if err := r.root.Rename(temporary, name); err != nil {
		return err
	}
	dir, err := r.root.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func (r *Run) removeIfThere(name string) error {
	if err := r.root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
