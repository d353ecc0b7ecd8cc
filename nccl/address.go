package nccl

import (
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/device"
)

// addressOf is where a region lies in the memory of a GPU; false for memory of the host.
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
