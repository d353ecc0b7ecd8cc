package train

import (
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// Observer is told what happens in a run, on the training goroutine: what it does counts as part of the run.
type Observer interface {
	// StepDone is called after each optimizer step. The record is valid during the call only.
	StepDone(r *StepRecord)
	EvalStarted(batches int)
	EvalProgress(done, batches int)
	EvalDone(e Evaluation)
	Saved(s checkpoint.Saved, took time.Duration)
	// Warn reports what went wrong without ending the run.
	Warn(err error)
}

// StepRecord is one optimizer step as the run saw it.
type StepRecord struct {
	StepResult
	Step       int64 // optimizer steps done, this one included
	Total      int64 // steps of the run, 0 if unknown
	Epoch      int   // from 0
	EpochStep  int   // steps of this epoch done, this one included
	EpochSteps int
	Rate       float64 // learning rate
	Skipped    int64   // steps skipped so far because of NaN or Inf
	Time       time.Time
}

// Evaluation is the outcome of one evaluation: means over all samples.
type Evaluation struct {
	Step       int64
	Epoch      int
	Samples    int
	Loss       float64
	Top1, Top5 float64 // shares, 0…1
	Best       bool    // the best so far
	Took       time.Duration
}
