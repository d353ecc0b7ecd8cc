package replica

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Parameters, moments and averages change only in Replica.update, which starts after the gradients of all ranks have
// arrived. Running statistics change in the forward pass. If a step is not completed, they must therefore be
// restored.

// allocateSpare allocates memory for a copy of the running statistics. A single rank needs no copy, because it
// completes every step.
func (r *Replica) allocateSpare() (err error) {
	bytes := r.state.Params.MovingBytes
	if r.group == nil || bytes == 0 {
		return nil
	}
	if r.spare, err = r.state.NewFlat(bytes); err != nil {
		return fmt.Errorf("replica: copy of the running statistics, %d bytes: %w", bytes, err)
	}
	r.closer.add(r.spare.Free)
	return nil
}

// moving returns the part of a buffer of statistics that training changes.
func (r *Replica) moving(b device.Buffer) device.Region {
	return device.Region{Buffer: b, Bytes: r.state.Params.MovingBytes}
}

// keepStatistics copies the running statistics before a step changes them. A large network has some hundred kilobytes
// of them.
func (r *Replica) keepStatistics() error {
	if r.spare == nil {
		return nil
	}
	if err := r.stream.Copy(r.moving(r.spare), r.moving(r.state.States)); err != nil {
		return fmt.Errorf("copy of the running statistics: %w", err)
	}
	r.began = true
	return nil
}

// AbandonStep restores the state of the last complete step. The communicators have failed and are drained, so no
// operation of the step waits for another rank.
func (r *Replica) AbandonStep() error {
	if err := r.stream.Sync(); err != nil {
		return err
	}
	if !r.began {
		return nil
	}
	if err := r.stream.Copy(r.moving(r.state.States), r.moving(r.spare)); err != nil {
		return err
	}
	r.began = false
	return r.stream.Sync()
}
