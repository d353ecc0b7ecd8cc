package platform

import (
	"errors"
	"os"
)

// SyncFolder calls SyncDir for the folder at path, so that new names in the folder survive a power failure.
func SyncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(SyncDir(dir), dir.Close())
}
