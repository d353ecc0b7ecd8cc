package nccl

import (
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/device"
)

// addressOf returns the address of a region in GPU memory, or false if the region is in host memory.
func addressOf(r device.Region) (unsafe.Pointer, bool) {
	b, ok := r.Buffer.(device.AddressedBuffer)
	if !ok {
		return nil, false
	}
	p := b.Address()
	if p == nil {
		return nil, false
	}
	return unsafe.Add(p, r.Offset), true
}
