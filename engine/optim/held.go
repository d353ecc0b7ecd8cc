package optim

import (
	"errors"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/plan"
)

// held owns the program and the memory of an optimizer, of averages or of norms.
type held struct {
	ops     *plan.Sequence
	program device.Program // of ops
	memory  []device.Buffer
	host    device.Buffer // host memory; also an element of memory
}

// Bytes returns the size of the device memory in bytes.
func (h *held) Bytes() (n int64) {
	if h.ops != nil {
		n = h.ops.Bytes()
	}
	for _, b := range h.memory {
		if b != h.host {
			n += b.Bytes()
		}
	}
	return n
}

// Launches returns the launches of one update.
func (h *held) Launches() []plan.LaunchInfo { return h.ops.Launches() }

// Close frees the program and the memory.
func (h *held) Close() error {
	var errs []error
	if h.ops != nil {
		errs = append(errs, h.ops.Close())
	}
	for _, b := range h.memory {
		errs = append(errs, b.Free())
	}
	h.ops, h.program, h.memory = nil, nil, nil
	return errors.Join(errs...)
}
