package platform

import (
	"errors"
	"os"
)

// SyncFolder is SyncDir for the folder at path, so that new names in it survive a power failure.
func SyncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(SyncDir(dir), dir.Close())
}
