//go:build !linux

package layout

import (
	"io/fs"
	"os"
)

// readNames calls visit for all entries of an open folder, in the order of the file system. The mode is the type of the
// entry.
func readNames(d *os.File, _ []byte, visit func(name []byte, mode fs.FileMode) error) error {
	entries, err := d.ReadDir(-1)
	for _, e := range entries {
		if err := visit([]byte(e.Name()), e.Type()); err != nil {
			return err
		}
	}
	return err
}
