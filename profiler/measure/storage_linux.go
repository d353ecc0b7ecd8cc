package measure

import (
	"os"

	"golang.org/x/sys/unix"
)

// forget throws a written file out of the page cache, so that it is read from the disk. File systems in memory keep it all the same, and
// their speed is that of the memory.
func forget(f *os.File) error {
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// freeBytes is the space that this user has left on a folder's file system.
func freeBytes(dir string) (int64, bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * s.Bsize, true
}
