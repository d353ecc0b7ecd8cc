//go:build !linux

package platform

import "errors"

// LockLimit returns the limit of memory that this process may keep from being swapped, in bytes. ok is false if it is
// unknown.
func LockLimit() (bytes uint64, ok bool) { return 0, false }

// Space returns the size of the file system of a folder, and the bytes that this process may still write to it.
func Space(string) (total, free int64, err error) {
	return 0, 0, errors.New("the space of file systems is measured on Linux only")
}

// ClockFollows reports whether the kernel's clock follows a time server. ok is false if it is unknown.
func ClockFollows() (follows, ok bool) { return false, false }
