//go:build !darwin && !windows

package platform

import (
	"errors"
	"fmt"
	"runtime"
)

// Describe returns errors.ErrUnsupported. On Linux, package profiler/system describes the machine.
func Describe() (Machine, error) {
	return Machine{}, fmt.Errorf("describe a machine with %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
