//go:build !cgo || !linux

package hardware

// Open returns no GPUs, because this program cannot load NVML.
func Open() *GPUs {
	return None("this program was built without cgo or for another system than Linux, so it cannot load NVIDIA's library NVML")
}
