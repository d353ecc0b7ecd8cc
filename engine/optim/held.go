package optim

import (
	"errors"

	"github.com/hetero-train/hetero-train/engine/device"
)

// held owns the program and the memory of a part of an update.
type held struct {
	program device.Program
	memory  []device.Buffer
	host    device.Buffer // one of memory; host memory
}

// Bytes returns the bytes of device memory.
func (h *held) Bytes() (n int64) {
	for _, b := range h.memory {
		if b != h.host {
			n += b.Bytes()
		}
	}
	return n
}

// Close frees the memory.
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
