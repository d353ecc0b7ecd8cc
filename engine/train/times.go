package train

import (
	"context"
	"fmt"
)

// tellTimes passes on the times of all ranks in one step.
func (r *run) tellTimes() {
	if r.Timed != nil && len(r.ranks.timed) > 0 {
		r.Timed(r.ranks.timed)
	}
}

// completeTimes exchanges the times of the last step, before it passes them on.
func (r *run) completeTimes(ctx context.Context) error {
	defer r.clock.pause()()
	if err := r.ranks.complete(ctx); err != nil {
		return fmt.Errorf("exchange the times of step %d: %w", r.at.step, err)
	}
	r.tellTimes()
	return nil
}
