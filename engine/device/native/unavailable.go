//go:build !cgo || !linux

package native

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Setting is an environment variable that is set while a library initialises, unless the process has set it.
type Setting struct{ Name, Value string }

// Library is a loaded native library. This build of the program cannot load libraries.
type Library struct{}

// Load returns device.ErrUnavailable: this program was built without cgo, or not for Linux.
func Load(path string, _ []Setting) (*Library, error) {
	return nil, fmt.Errorf("%w: cannot load %s: this program was built without cgo, or not for Linux",
		device.ErrUnavailable, path)
}

// Describe returns device.ErrUnavailable.
func (*Library) Describe(int) (device.Info, error) { return device.Info{}, device.ErrUnavailable }

// Kind returns "".
func (*Library) Kind() string { return "" }

// Build returns "".
func (*Library) Build() string { return "" }

// Path returns "".
func (*Library) Path() string { return "" }

// Count returns device.ErrUnavailable.
func (*Library) Count() (int, error) { return 0, device.ErrUnavailable }

// Open returns device.ErrUnavailable.
func (*Library) Open(int, device.Options) (device.Device, error) { return nil, device.ErrUnavailable }
