//go:build !linux

package platform

import "errors"

// LockLimit returns ok = false, because only Linux is supported.
func LockLimit() (bytes uint64, ok bool) { return 0, false }

// Space returns an error, because only Linux is supported.
func Space(string) (total, free int64, err error) {
	return 0, 0, errors.New("the space of file systems is measured on Linux only")
}

// ClockFollows returns ok = false, because only Linux is supported.
func ClockFollows() (follows, ok bool) { return false, false }
