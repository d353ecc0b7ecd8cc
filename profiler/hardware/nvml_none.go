//go:build !cgo || !linux

package hardware

import "runtime"

// Open returns no GPUs, because this program cannot load NVML.
func Open() *GPUs {
	if runtime.GOOS != "linux" {
		return None("the program finds GPUs only on Linux")
	}
	return None("this program was built without cgo, so it cannot load NVIDIA's library NVML")
}
