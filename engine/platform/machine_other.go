//go:build !darwin && !windows

package platform

import (
	"errors"
	"fmt"
	"runtime"
)

// Describe returns errors.ErrUnsupported. Package profiler/system describes a machine with Linux.
func Describe() (Machine, error) {
	return Machine{}, fmt.Errorf("describe a machine with %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
