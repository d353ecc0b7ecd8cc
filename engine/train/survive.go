package train

import (
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/data"
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

// abandonStep restores the state of the last complete step. The communicators have failed and are drained, so no
// operation of the step waits for another rank.
func (r *Replica) abandonStep() error {
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

// survivable reports whether this rank has the state of the last complete step after err. This is the case if another
// rank is lost, late or has failed, or if this rank's data cannot be read.
func survivable(err error) bool {
	return errors.As(err, new(*collective.PeerError)) || errors.As(err, new(*collective.TimeoutError)) || errors.As(err, new(*data.Fault))
}

// survive saves the last complete step on rank 0 after a run of several ranks has failed. All ranks have the same
// state, so rank 0 can save it without the other ranks.
func (r *run) survive(cause error) error {
	if r.group() == nil || !survivable(cause) || r.unsound || r.step == 0 {
		return cause
	}
	if err := r.Replica.abandonStep(); err != nil {
		return errors.Join(cause, fmt.Errorf("%w: return to step %d: %w", ErrFinalSave, r.step, err))
	}
	if err := r.finalSave(); err != nil {
		return errors.Join(cause, err)
	}
	r.result.Survived = true
	return cause
}
