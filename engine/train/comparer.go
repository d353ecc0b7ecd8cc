package train

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// comparer compares the replicas of all ranks, and the data that they read.
type comparer struct {
	replica *replica.Replica
	ranks   *consensus
	at      *progress
	clock   *stopwatch
	saves   *saver
	beside  bool                                        // saves write in the background
	every   int64                                       // Options.CompareSteps
	share   float64                                     // Options.CompareShare
	data    func(ctx context.Context, whole bool) error // Options.CompareData

	last    comparison
	lineage checkpoint.Compared
}

// comparison is the last comparison of the ranks that found equal replicas.
type comparison struct {
	step             int64 // -1 before the first comparison
	ended            time.Time
	took             time.Duration
	model, optimizer []checkpoint.Tensor // with the checksums that all ranks have
	copied           bool                // the tensors are copies in host memory
}

// compare compares the replicas of all ranks after this step: all tensors of a checkpoint, and the counters. All ranks
// call it. It does nothing if the ranks were already compared after this step. If copying is true, rank 0 copies the
// tensors for a save in the background, and the checksums are those of the copies.
func (c *comparer) compare(ctx context.Context, copying bool) error {
	step := c.at.step
	if c.ranks.group == nil || c.last.step == step {
		return nil
	}
	defer c.clock.pause()()
	next := comparison{step: step, copied: copying && c.copies()}
	begun := time.Now()
	parts, err := c.sumUp(&next)
	if err != nil {
		return fmt.Errorf("comparing replicas after step %d: %w", step, err)
	}
	if err := c.compareParts(ctx, parts); err != nil {
		if errors.As(err, new(*gradsync.ReplicaError)) {
			return c.quarantine(err)
		}
		return fmt.Errorf("step %d: %w", step, err)
	}
	if err := c.compareData(ctx, false); err != nil {
		return err
	}
	next.ended, next.took = time.Now(), time.Since(begun)
	c.last, c.lineage.Step, c.lineage.Ranks = next, step, c.ranks.group.Size()
	return nil
}

// due reports whether rank 0 requests a comparison after the given step. The comparisons between saves take at most the
// fraction CompareShare of the time.
func (c *comparer) due(step int64) bool {
	if !c.ranks.leads() || c.every == 0 || step-c.last.step < c.every {
		return false
	}
	return c.share == 0 || time.Since(c.last.ended).Seconds()*c.share >= c.last.took.Seconds()
}

// forget makes the next call of compare repeat the comparison, because the weights have changed.
func (c *comparer) forget() { c.last.step = -1 }

// copies reports whether this rank writes checkpoints in the background.
func (c *comparer) copies() bool { return c.beside && c.ranks.leads() && c.replica.CanCopy() }

// tensors returns the tensors for a save of this step. If the ranks were compared after this step, they have the
// checksums of the comparison.
func (c *comparer) tensors() (model, optimizer []checkpoint.Tensor) {
	if c.last.step == c.at.step {
		return c.last.model, c.last.optimizer
	}
	return c.replica.Tensors()
}

// copied returns copies in host memory of the tensors for a save of this step. If the ranks were compared after this
// step, the copies have the checksums of the comparison.
func (c *comparer) copied() (model, optimizer []checkpoint.Tensor, err error) {
	last := c.last
	if last.step == c.at.step && last.copied {
		return last.model, last.optimizer, nil
	}
	model, optimizer, err = c.replica.Copies()
	if last.step != c.at.step || err != nil {
		return model, optimizer, err
	}
	for i := range model {
		model[i].Sum = last.model[i].Sum
	}
	for i := range optimizer {
		optimizer[i].Sum = last.optimizer[i].Sum
	}
	return model, optimizer, nil
}

// sumUp sets the tensors of next and their checksums, and returns all parts to compare.
func (c *comparer) sumUp(next *comparison) (parts []gradsync.Part, err error) {
	if err := c.replica.Sync(); err != nil {
		return nil, err
	}
	if next.copied {
		c.saves.settle() // it uses the memory of the copies
		next.model, next.optimizer, err = c.replica.Copies()
	} else {
		next.model, next.optimizer = c.replica.Tensors()
	}
	if err != nil {
		return nil, err
	}
	counters := fmt.Sprintf("%s, %d %v", c.at.counters(), c.replica.Optimizer().Steps(), c.replica.Scale())
	parts = append(parts, gradsync.Part{Name: "the counters", Sum: crc32.ChecksumIEEE([]byte(counters))})
	for _, list := range [][]checkpoint.Tensor{next.model, next.optimizer} {
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

// compareParts returns a *gradsync.ReplicaError, which names the ranks that differ, unless the parts of all ranks have
// the same checksums.
func (c *comparer) compareParts(ctx context.Context, parts []gradsync.Part) error {
	group := c.ranks.group
	err := gradsync.Replicas(ctx, group.Grads, c.replica.Device(), parts)
	if errors.As(err, new(*gradsync.ReplicaError)) {
		// Without this barrier, a rank might see only that another rank left, and would save its own state as valid.
		_ = group.Barrier(ctx, "replicas differ") // the run ends in any case, so the barrier's error does not matter
	}
	return err
}

// compareData compares the data that the ranks have read so far. If the data differ, it is unknown since which step.
// compareData therefore hides all checkpoints that this process has saved. The comparisons of earlier processes found
// no difference.
func (c *comparer) compareData(ctx context.Context, whole bool) error {
	if c.data == nil {
		return nil
	}
	err := c.data(ctx, whole)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("step %d: %w", c.at.step, err)
	if !errors.Is(err, data.ErrDiffers) {
		return err
	}
	first := c.at.first
	return c.saves.hide(first, fmt.Errorf("%w; the steps after step %d may have been trained on a mixture, "+
		"so the same command resumes from the newest checkpoint up to step %d, or starts again", err, first, first))
}

// quarantine hides the checkpoints that rank 0 saved after the last comparison with equal replicas. It returns cause
// with the step of this comparison.
func (c *comparer) quarantine(cause error) error {
	step, sound := c.at.step, c.last.step
	if sound < 0 { // the ranks differ at the start of this process, so no later checkpoint exists
		return c.saves.hide(step, fmt.Errorf("step %d, after rank 0 sent its state to all ranks: %w", step, cause))
	}
	return c.saves.hide(sound, fmt.Errorf("step %d: %w; the replicas were equal after step %d, "+
		"so the same command resumes from the newest checkpoint up to this step", step, cause, sound))
}

// inherit continues the record of comparisons of a checkpoint. Rank 0 warns if the ranks were not compared before it
// was saved.
func (c *comparer) inherit(s checkpoint.State) {
	c.lineage.Step, c.lineage.Gaps = s.Step, s.AllGaps()
	if after, yes := s.Uncompared(); yes && c.ranks.leads() {
		c.saves.observer.Warn(fmt.Errorf("the checkpoint of step %d was saved after a rank was lost: the ranks were not compared since step %d, "+
			"so an undetected memory error of rank 0 in these steps would remain; to exclude it, resume from an earlier checkpoint (--resume PATH)",
			s.Step, after))
	}
}
