package platform

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// lockedByte is the upper half of the 64-bit position of the byte that TryLock locks. On Windows, other processes
// cannot read locked bytes. No file is long enough to contain this position, so the contents of the file remain
// readable.
const lockedByte = 1 << 30

// TryLock locks a file exclusively. It does not wait: if another open file has the lock, it returns ErrLocked. The
// system releases the lock when the file is closed, or when the process ends for any reason.
func TryLock(f *os.File) error {
	at := windows.Overlapped{OffsetHigh: lockedByte}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return ErrLocked
	}
	return os.NewSyscallError("LockFileEx", err)
}

// Map maps the first bytes of a file into memory, for reading. The map remains valid after the file is closed.
func Map(f *os.File, bytes int) ([]byte, error) {
	mapping, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, os.NewSyscallError("CreateFileMapping", err)
	}
	defer windows.CloseHandle(mapping) //nolint:errcheck // the view keeps the mapping
	at, err := windows.MapViewOfFile(mapping, windows.FILE_MAP_READ, 0, 0, uintptr(bytes))
	if err != nil {
		return nil, os.NewSyscallError("MapViewOfFile", err)
	}
	// The address is not in Go's heap, so the garbage collector never moves it.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), bytes), nil
}

// Unmap removes a map that Map has created.
func Unmap(mapped []byte) error {
	return os.NewSyscallError("UnmapViewOfFile",
		windows.UnmapViewOfFile(uintptr(unsafe.Pointer(unsafe.SliceData(mapped)))))
}

// SyncDir returns nil, because Windows cannot flush a folder. NTFS writes renames to its journal in order. After a
// power failure, a renamed file therefore has either its old or its complete new contents, but the newest rename may be
// lost.
func SyncDir(*os.File) error { return nil }

// FileID returns ok = false, because os.FileInfo does not contain these numbers on Windows.
func FileID(os.FileInfo) (device, inode uint64, ok bool) { return 0, 0, false }

// Links returns 0, because os.FileInfo does not contain this number on Windows.
func Links(os.FileInfo) uint64 { return 0 }

// OwnedByRoot returns ok = false, because os.FileInfo does not contain the owner on Windows.
func OwnedByRoot(os.FileInfo) (owned, ok bool) { return false, false }

// KeepOwner does nothing, because a file on Windows inherits its rights from its folder.
func KeepOwner(*os.File, os.FileInfo) error { return nil }
