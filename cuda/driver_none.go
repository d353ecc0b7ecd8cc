//go:build !(cuda && cgo && linux)

package cuda

import (
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/native"
)

// Binding describes how this build queries the driver.
const Binding = "this program queries the driver only through the device's library, because it was built without a CUDA toolkit (tag cuda)"

// seen returns no information.
func seen() (count int, asked bool, err error) { return 0, false, nil }

// opened opens a GPU in the context that the library creates.
func opened(lib *native.Library, index int, opts device.Options) (device.Device, error) {
	return lib.Open(index, opts)
}
