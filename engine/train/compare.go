package train

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/gradsync"
)

// comparison is the last comparison of the ranks that found equal replicas.
type comparison struct {
	step             int64 // -1 before the first comparison
	ended            time.Time
	took             time.Duration
	model, optimizer []checkpoint.Tensor // with the checksums that all ranks have
	copied           bool                // the tensors are copies in host memory
}

// compare compares the replicas of all ranks after this step: all tensors of a checkpoint, and the counters. All ranks
// call it. It does nothing if it was called after this step before. If copying is set, rank 0 copies the tensors for
// saveBeside, and the checksums are those of the copies.
func (r *run) compare(ctx context.Context, copying bool) error {
	if r.group() == nil || r.compared.step == r.step {
		return nil
	}
	defer r.pause()()
	c := comparison{step: r.step, copied: copying && r.copies()}
	begun := time.Now()
	parts, err := r.sumUp(&c)
	if err != nil {
		return fmt.Errorf("comparing replicas after step %d: %w", r.step, err)
	}
	if err := r.compareParts(ctx, parts); err != nil {
		if errors.As(err, new(*gradsync.ReplicaError)) {
			return r.quarantine(err)
		}
		return fmt.Errorf("step %d: %w", r.step, err)
	}
	if err := r.compareData(ctx, false); err != nil {
		return err
	}
	c.ended, c.took = time.Now(), time.Since(begun)
	r.compared, r.lineage.Step = c, r.step
	return nil
}

// copies reports whether this rank writes checkpoints in the background.
func (r *run) copies() bool { return r.Beside && r.leads() && r.Replica.CanCopy() }

// sumUp sets the tensors of c and their checksums, and returns all parts to compare.
func (r *run) sumUp(c *comparison) (parts []gradsync.Part, err error) {
	if err := r.Replica.Sync(); err != nil {
		return nil, err
	}
	if c.copied {
		r.settleSave() // it uses the memory of the copies
		c.model, c.optimizer, err = r.Replica.Copies()
	} else {
		c.model, c.optimizer = r.Replica.Tensors()
	}
	if err != nil {
		return nil, err
	}
	parts = append(parts, gradsync.Part{Name: "the counters", Sum: crc32.ChecksumIEEE([]byte(r.counters()))})
	for _, list := range [][]checkpoint.Tensor{c.model, c.optimizer} {
		for i := range list {
			sum, err := list[i].Checksum()
			if err != nil {
				return nil, err
			}
			list[i].Sum = &sum
			parts = append(parts, gradsync.Part{Name: list[i].Name, Sum: sum})
		}
	}
	return parts, nil
}

// counters returns the values of a checkpoint's state that influence training and must be equal on all ranks.
func (r *run) counters() string {
	return fmt.Sprint(r.step, r.position(), r.seen, r.nanRow, r.replaced, r.result.Skipped, r.result.RollBacks,
		r.result.Replaced, r.Replica.Optimizer().Steps(), r.Replica.Scale())
}

// compareDue reports whether rank 0 requests a comparison after the given step. The comparisons between saves take at
// most the fraction CompareShare of the time.
func (r *run) compareDue(step int64) bool {
	if !r.leads() || r.CompareSteps == 0 || step-r.compared.step < r.CompareSteps {
		return false
	}
	return r.CompareShare == 0 || time.Since(r.compared.ended).Seconds()*r.CompareShare >= r.compared.took.Seconds()
}

// quarantine hides the checkpoints that rank 0 saved after the last comparison with equal replicas. It returns cause
// with the step of this comparison.
func (r *run) quarantine(cause error) error {
	sound := r.compared.step
	if sound < 0 {
		sound = r.step // the ranks differ at the start of this process, so no later checkpoint exists
	}
	err := fmt.Errorf("step %d: %w; the replicas were equal after step %d, so the same command resumes from the newest checkpoint up to this step",
		r.step, cause, sound)
	if r.compared.step < 0 {
		err = fmt.Errorf("step %d, after rank 0 sent its state to all ranks: %w", r.step, cause)
	}
	return r.hide(sound, err)
}

// hide moves the checkpoints that rank 0 saved after step sound to a quarantine folder, with the reason err. It returns
// err with their names.
func (r *run) hide(sound int64, err error) error {
	if !r.leads() || r.Store == nil {
		return err
	}
	r.leaving()
	r.settleSave()
	moved, moveErr := r.Store.Quarantine(sound, err.Error())
	if len(moved) > 0 {
		err = fmt.Errorf("%w; checkpoints that may be wrong were moved to a folder quarantined-N: %s", err,
			strings.Join(moved, ", "))
	}
	return errors.Join(err, moveErr)
}

// inherit continues the record of comparisons of a checkpoint. Rank 0 warns if the ranks were not compared before it
// was saved.
func (r *run) inherit(s checkpoint.State) {
	r.lineage.Step, r.lineage.Gaps = s.Step, s.AllGaps()
	if after, yes := s.Uncompared(); yes && r.leads() {
		r.Observer.Warn(
			fmt.Errorf(
				"the checkpoint of step %d was saved after a rank was lost: the ranks were not compared since step %d, "+
					"so an undetected memory error of rank 0 in these steps would remain; to exclude it, resume from an earlier checkpoint (--resume PATH)",
				s.Step, after))
	}
}

// compareParts returns a *gradsync.ReplicaError, which names the ranks that differ, unless the parts of all ranks have
// the same checksums.
func (r *run) compareParts(ctx context.Context, parts []gradsync.Part) error {
	err := gradsync.Replicas(ctx, r.group().Grads, r.Replica.Device(), parts)
	if errors.As(err, new(*gradsync.ReplicaError)) {
		// Without this barrier, a rank might see only that another rank left, and would save its own state as valid.
		// the run ends in any case, so the barrier's error does not matter
		_ = r.group().Barrier(ctx, "replicas differ")
	}
	return err
}
