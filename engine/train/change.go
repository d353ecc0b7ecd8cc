package train

import (
	"errors"
	"fmt"
)

// split asks the splitter for shares, and switches to these shares once all ranks have plans for them.
func (r *run) split() error {
	if r.Splitter == nil || r.group() == nil {
		return nil
	}
	owner := r.Replica.Shares()
	if owner.Next() != nil {
		r.Splitter.Split(r.step, r.reported, true)
		if r.asked.unready {
			return nil
		}
		return r.switchShares()
	}
	next := r.Splitter.Split(r.step, r.reported, false)
	if next == nil {
		return nil
	}
	if err := owner.Propose(next, r.Replica.Prepare); err != nil {
		return fmt.Errorf("prepare shares %v after step %d: %w", next, r.step, err)
	}
	r.asked.unready = owner.Next() != nil // postpone the switch until all ranks report that they are ready
	return nil
}

// switchShares switches to the new shares. All ranks have plans for them. The next step uses the new shares.
func (r *run) switchShares() error {
	owner := r.Replica.Shares()
	next := owner.Next()
	read := r.Replica.Staged() // true if the next step's batch was staged for the old shares
	err := r.Replica.SwitchShares()
	if read {
		err = errors.Join(err, r.jump())
	}
	if err != nil {
		return fmt.Errorf("apply shares %v from step %d on: %w", next, r.step+1, err)
	}
	r.changed, r.sinceChange = true, 0
	reads := owner.Part()
	return r.Train.SetShare(r.position()*int64(r.Replica.Options().Accumulation), reads.Offset, reads.Count)
}
