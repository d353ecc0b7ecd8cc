//go:build !linux

package platform

import (
	"errors"
	"fmt"
	"runtime"
)

// LockLimit returns ok = false, because only Linux is supported.
func LockLimit() (bytes uint64, ok bool) { return 0, false }

// Space returns errors.ErrUnsupported, because only Linux is supported.
func Space(string) (total, free int64, err error) {
	return 0, 0, fmt.Errorf("measure the space of a file system with %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// ClockFollows returns ok = false, because only Linux is supported.
func ClockFollows() (follows, ok bool) { return false, false }
