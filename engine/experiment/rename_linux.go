package experiment

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// renameNew renames a folder. If the new name exists, it returns fs.ErrExist.
func renameNew(dir *os.Root, from, to string) error {
	here, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer here.Close()
	fd := int(here.Fd())
	err = unix.Renameat2(fd, from, fd, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// Some file systems do not support this operation. Rename may replace an empty folder, but never a run.
		return dir.Rename(from, to)
	}
	return err
}
