package experiment

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// renameNew renames a folder to a name that does not exist; fs.ErrExist where it does.
func renameNew(dir *os.Root, from, to string) error {
	here, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer here.Close()
	fd := int(here.Fd())
	err = unix.Renameat2(fd, from, fd, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // some file systems cannot; there an empty folder may be replaced, a run never
		return dir.Rename(from, to)
	}
	return err
}
