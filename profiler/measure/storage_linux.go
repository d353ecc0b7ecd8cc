package measure

import (
	"os"

	"golang.org/x/sys/unix"
)

// forget drops a written file from the page cache, so that the next read comes from the disk. A file system in memory
// keeps the file there, and the measured speed is then that of the memory.
func forget(f *os.File) error {
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// freeBytes returns the free space on the file system of dir, in bytes, as available to this user.
func freeBytes(dir string) (int64, bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * s.Bsize, true
}
