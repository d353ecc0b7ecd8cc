package optim

import (
	"errors"

	"github.com/hetero-train/hetero-train/engine/device"
)

// held owns the program and the memory of an optimizer, of averages or of norms.
type held struct {
	program device.Program
	memory  []device.Buffer
	host    device.Buffer // host memory; also an element of memory
}

// Bytes returns the size of the device memory in bytes.
func (h *held) Bytes() (n int64) {
	for _, b := range h.memory {
		if b != h.host {
			n += b.Bytes()
		}
	}
	return n
}

// Close frees the program and the memory.
func (h *held) Close() error {
	var errs []error
	if h.program != nil {
		errs = append(errs, h.program.Close())
	}
	for _, b := range h.memory {
		errs = append(errs, b.Free())
	}
	h.program, h.memory = nil, nil
	return errors.Join(errs...)
}
