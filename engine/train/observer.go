package train

import (
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// Observer receives the events of a run. Its methods run on the training goroutine, so a slow method slows the run
// down. They must not wait for the disk, because a file system may hang. Only RolledBack may wait for the disk: it runs
// on a separate goroutine, for which the training goroutine waits.
type Observer interface {
	// StepDone is called after each optimizer step. The record is valid only during the call.
	StepDone(r *StepRecord)
	EvalDone(e Evaluation)
	// RolledBack is called when the run returns to an earlier step. All steps after this one will be repeated.
	RolledBack(step int64)
	// Saving is called before a checkpoint is written. The observer flushes its data, so that the data is as durable as
	// the checkpoint. If the flush is still in progress when Saving returns, Options.Disk reports when it ends.
	Saving()
	Saved(s checkpoint.Saved, took time.Duration)
	// Warn reports an error that does not end the run.
	Warn(err error)
}

// StepRecord describes one optimizer step. Losses and counts are totals over all ranks. Times are those of this rank.
type StepRecord struct {
	replica.StepResult
	Took       time.Duration // training time of the step on this rank, see Trained; Times has the measured parts of it
	Trained    Trained       // the steps of the run up to this one
	Ranks      []RankStep    // report of each rank; the entry of this rank has its measured times of this step
	Shares     []int         // samples of a micro-batch per rank; nil for a single rank
	Changed    bool          // Shares differ from those of the previous step
	Step       int64         // number of optimizer steps done, including this step
	Total      int64         // number of steps of the run; 0 if unknown
	Epoch      int           // number of the epoch, from 0
	EpochStep  int           // number of steps of this epoch done, including this step
	EpochSteps int
	Rate       float64 // learning rate
	Skipped    int64   // number of steps skipped so far because the gradient was not finite
	Time       time.Time

	EpochReplaced int // samples of this epoch that could not be read, on all ranks
}
