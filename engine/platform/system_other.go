//go:build !linux && !darwin && !windows

package platform

import "runtime"

// System is the name of the operating system.
const System = runtime.GOOS
