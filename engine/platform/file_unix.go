//go:build unix

package platform

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// TryLock locks a file exclusively. It does not wait: if another open file has the lock, it returns ErrLocked. The
// system releases the lock when the file is closed, or when the process ends for any reason.
func TryLock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrLocked
		default:
			return err
		}
	}
}

// Map maps the first bytes of a file into memory, for reading. The map remains valid after the file is closed.
func Map(f *os.File, bytes int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, bytes, unix.PROT_READ, unix.MAP_SHARED)
}

// Unmap removes a map that Map has created.
func Unmap(mapped []byte) error { return unix.Munmap(mapped) }

// SyncDir makes the creation, renaming and removal of entries of an open folder durable.
func SyncDir(dir *os.File) error { return dir.Sync() }

// FileID returns numbers that identify a file on this machine. The result ok is false if the system does not report
// them.
func FileID(info os.FileInfo) (device, inode uint64, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return uint64(stat.Dev), stat.Ino, true //nolint:unconvert // an int32 on macOS
}

// Links returns the number of hard links to a file; 0 if the system does not report it.
func Links(info os.FileInfo) uint64 {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return uint64(stat.Nlink) //nolint:unconvert // a uint16 on macOS
}

// OwnedByRoot reports whether the superuser owns a file. The result ok is false if the system does not report the
// owner.
func OwnedByRoot(info os.FileInfo) (owned, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid == 0, ok
}

// KeepOwner gives an open file the owner and the group of another file. It does nothing if both files already have the
// same owner and group.
func KeepOwner(f *os.File, other os.FileInfo) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	is, ok := info.Sys().(*syscall.Stat_t)
	want, known := other.Sys().(*syscall.Stat_t)
	if !ok || !known || is.Uid == want.Uid && is.Gid == want.Gid {
		return nil
	}
	return f.Chown(int(want.Uid), int(want.Gid))
}
