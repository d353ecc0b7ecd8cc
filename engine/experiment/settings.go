package experiment

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/hetero-train/hetero-train/engine/regular"
)

const (
	resolvedFile = "resolved.toml"
	versionFile  = "version.txt"

	mostSettingsBytes = 1 << 20 // a settings file may have 64 KiB; defaults make it longer
)

// PreviousConfig returns the text of configs/resolved.toml, or "" if the file does not exist.
func (r *Run) PreviousConfig() (string, error) {
	text, err := regular.ReadIn(r.root, filepath.Join(configsFolder, resolvedFile), mostSettingsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), folderError("read", filepath.Join(r.ConfigDir(), resolvedFile), err)
}

// StoreConfig writes the resolved settings (TOML) and the version of the program. If different settings are already
// stored, it first renames their file to resolved.1.toml, resolved.2.toml, and so on.
func (r *Run) StoreConfig(resolved, version string) error {
	previous, err := r.PreviousConfig()
	if err != nil {
		return err
	}
	if previous != "" && previous != resolved {
		if err := r.keepPreviousConfig(); err != nil {
			return folderError("save the earlier settings in", r.ConfigDir(), err)
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
