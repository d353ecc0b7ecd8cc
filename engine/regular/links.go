package regular

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// StayIn returns an *Error for the first symbolic link that leads out of root. It checks the given files and folders of
// root, and the contents of these folders. Within the folders, it also refuses links to folders, because it does not
// examine their files. Code that then opens these files by their paths reads nothing outside root. Other links within
// root, links without a target and missing files are not an error.
func StayIn(root *os.Root, names ...string) error {
	for _, name := range names {
		err := fs.WalkDir(root.FS(), name, func(path string, _ fs.DirEntry, err error) error {
			own, statErr := root.Lstat(path)
			if statErr == nil && own.Mode()&fs.ModeSymlink != 0 {
				target, err := root.Stat(path)
				switch {
				case err != nil && !errors.Is(err, fs.ErrNotExist):
					return &Error{filepath.Join(root.Name(), path),
						fmt.Sprintf("a link must not lead out of %s: %v", root.Name(), err)}
				case err == nil && target.IsDir() && path != name:
					return &Error{filepath.Join(root.Name(), path), "got a link to a folder, want a folder"}
				}
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
