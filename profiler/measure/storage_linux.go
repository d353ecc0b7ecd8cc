package measure

import (
	"os"

	"golang.org/x/sys/unix"
)

// forget drops a written file from the page cache, so that it is read from the disk. File systems in memory keep the
// file, and their speed is that of the memory.
func forget(f *os.File) error {
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// freeBytes returns the free space for this user on the file system of a folder.
func freeBytes(dir string) (int64, bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * s.Bsize, true
}
