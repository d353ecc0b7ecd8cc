//go:build !cgo || !linux

package hardware

// Open answers that there is no GPU: NVML cannot be loaded by this program.
func Open() *GPUs {
	return None("this program was built without cgo or for another system than Linux, so it cannot load NVIDIA's library NVML")
}
