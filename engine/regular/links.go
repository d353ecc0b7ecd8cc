package regular

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// StayIn returns an *Error for the first symbolic link among the given files and folders of root, or within these folders,
// that leads out of root. Code that then opens these files by their paths reads nothing outside root. Links within root,
// links without a target and missing files are no error.
func StayIn(root *os.Root, names ...string) error {
	for _, name := range names {
		err := fs.WalkDir(root.FS(), name, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type()&fs.ModeSymlink != 0 {
				_, err = root.Stat(path)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return &Error{filepath.Join(root.Name(), path), fmt.Sprintf("a link must not lead out of %s: %v", root.Name(), err)}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
