package optim

import (
	"errors"

	"github.com/hetero-train/hetero-train/engine/device"
)

// held is what lasts as long as a part of an update: its program and its memory.
type held struct {
	program device.Program
	memory  []device.Buffer
	host    device.Buffer // one of memory, and no device memory
}

// Bytes is the device memory.
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
