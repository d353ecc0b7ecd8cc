package train

import (
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// divider changes the shares of the ranks between two steps.
type divider struct {
	splitter Splitter // nil: no changes
	replica  *replica.Replica
	loader   *data.Loader
	ranks    *consensus
	at       *progress

	version int    // version of the shares that the loader reads; see shares.Owner
	changed bool   // the step is the first with new shares
	steps   int    // number of steps with the current shares
	noted   string // the last notes that the method notes returned
}

// split asks the splitter for shares, and switches to these shares once all ranks have plans for them.
func (d *divider) split() error {
	if d.splitter == nil || d.ranks.group == nil {
		return nil
	}
	owner, partial := d.replica.Shares(), d.partial()
	if owner.Next() != nil {
		if !partial {
			d.splitter.Split(d.at.step, d.ranks.reported, true)
		}
		if d.ranks.asked.unready {
			return nil
		}
		next := owner.Next()
		if err := d.replica.SwitchShares(); err != nil {
			return fmt.Errorf("apply shares %v from step %d on: %w", next, d.at.step+1, err)
		}
		return nil
	}
	if partial {
		return nil
	}
	next := d.splitter.Split(d.at.step, d.ranks.reported, false)
	if next == nil {
		return nil
	}
	if err := owner.Propose(next, d.replica.Prepare); err != nil {
		return fmt.Errorf("prepare shares %v after step %d: %w", next, d.at.step, err)
	}
	d.ranks.asked.unready = owner.Next() != nil // postpone the switch until all ranks report that they are ready
	return nil
}

// partial reports whether the last step had fewer samples than the others. Its times say little about the speed of the
// ranks, because some of them had no samples, and others may have computed padding. If epochs have a single step, all
// steps are equal, and none is partial.
func (d *divider) partial() bool {
	reported := d.ranks.reported
	if d.loader.BatchesPerEpoch() <= d.replica.Options().Accumulation {
		return false
	}
	return len(reported) > 0 && total(reported).Samples < d.replica.Options().BatchSize
}

// jump moves the loader to the batches of the next step.
func (d *divider) jump() error {
	return errors.Join(d.replica.Discard(), d.loader.JumpTo(d.batch()))
}

// batch returns the number of the next step's first batch.
func (d *divider) batch() int64 {
	return d.at.position() * int64(d.replica.Options().Accumulation)
}

// follow makes the loader read this rank's part of the current shares, if they have changed since the last step.
func (d *divider) follow() error {
	owner := d.replica.Shares()
	if d.version == owner.Version() {
		return nil
	}
	d.version, d.changed, d.steps = owner.Version(), true, 0
	if d.replica.Staged() { // the staged batch belongs to the old shares
		if err := d.jump(); err != nil {
			return err
		}
	}
	part := owner.Part()
	return d.loader.SetShare(d.batch(), part.Offset, part.Count)
}

// notes returns the notes of the device about the programs for the current shares, unless it returned the same notes
// last time. The result is nil except in the second step with the current shares, because by then every program has run
// once.
func (d *divider) notes() error {
	d.steps++
	dev, ok := d.replica.Device().(device.Noting)
	if !ok || d.steps != 2 {
		return nil
	}
	notes := dev.Notes()
	if notes == d.noted {
		return nil
	}
	d.noted = notes
	return fmt.Errorf("device %s: %s", d.replica.Device().Info().Name, notes)
}
