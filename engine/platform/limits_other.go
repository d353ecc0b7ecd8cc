//go:build !linux

package platform

import "errors"

// LockLimit returns the amount of memory, in bytes, that this process may lock to prevent swapping. ok is false if the
// limit is unknown.
func LockLimit() (bytes uint64, ok bool) { return 0, false }

// Space returns the size, in bytes, of the file system of a folder, and the bytes that this process may still write to
// it.
func Space(string) (total, free int64, err error) {
	return 0, 0, errors.New("the space of file systems is measured on Linux only")
}

// ClockFollows reports whether the kernel's clock follows a time server. ok is false if it is unknown.
func ClockFollows() (follows, ok bool) { return false, false }
