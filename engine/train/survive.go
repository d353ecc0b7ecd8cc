package train

import (
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/data"
)

// survivable reports whether this rank has the state of the last complete step after err. This is the case if another
// rank is lost, late or has failed, or if this rank's data cannot be read.
func survivable(err error) bool {
	return errors.As(err, new(*collective.PeerError)) || errors.As(err, new(*collective.TimeoutError)) ||
		errors.As(err, new(*data.Fault))
}

// survive saves the last complete step on rank 0 after a run of several ranks has failed. All ranks have the same
// state, so rank 0 can save it without the other ranks.
func (r *run) survive(cause error) error {
	if r.group() == nil || !survivable(cause) || r.unsound || r.at.step == 0 {
		return cause
	}
	if err := r.Replica.AbandonStep(); err != nil {
		return errors.Join(cause, fmt.Errorf("%w: return to step %d: %w", ErrFinalSave, r.at.step, err))
	}
	if err := r.finalSave(); err != nil {
		return errors.Join(cause, err)
	}
	r.result.Survived = true
	return cause
}
