package train

import (
	"encoding/json"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// Observer is told what happens in a run, on the training goroutine: what it does counts as part of the run.
type Observer interface {
	// StepDone is called after each optimizer step. The record is valid during the call only.
	StepDone(r *StepRecord)
	EvalDone(e Evaluation)
	// RolledBack is called when the run goes back to an earlier step: later steps come again.
	RolledBack(step int64)
	// Saving is called before a checkpoint is written: what shall be as safe as the checkpoint is flushed here.
	Saving()
	Saved(s checkpoint.Saved, took time.Duration)
	// Warn reports what went wrong without ending the run.
	Warn(err error)
}

// StepRecord is one optimizer step as the run saw it: losses and counts are those of all ranks, times those of this one.
type StepRecord struct {
	StepResult
	Ranks      []RankStep // each rank's part: this one's as it measured it, the others' as they reported it
	Shares     []int      // samples of a micro-batch that each rank had; nil for a run of one rank
	Changed    bool       // they are others than in the step before
	Step       int64      // optimizer steps done, this one included
	Total      int64      // steps of the run, 0 if unknown
	Epoch      int        // from 0
	EpochStep  int        // steps of this epoch done, this one included
	EpochSteps int
	Rate       float64 // learning rate
	Skipped    int64   // steps skipped so far because of NaN or Inf
	Time       time.Time

	EpochReplaced int // samples of this epoch, over all ranks, that could not be read
}

// Evaluation is the outcome of one evaluation: means over all samples.
type Evaluation struct {
	Step       int64
	Epoch      int
	Samples    int
	Loss       float64
	Top1, Top5 float64 // shares, 0…1
	Best       bool    // the best so far
	Averaged   bool    // of the averaged weights
	Took       time.Duration
}

// evaluationJSON carries a loss that is not a number, which JSON's own numbers cannot.
type evaluationJSON struct {
	Step     int64            `json:"step"`
	Epoch    int              `json:"epoch"`
	Samples  int              `json:"samples"`
	Loss     checkpoint.Float `json:"loss"`
	Top1     float64          `json:"top1"`
	Top5     float64          `json:"top5"`
	Best     bool             `json:"best"`
	Took     time.Duration    `json:"took_ns"`
	Averaged bool             `json:"averaged,omitempty"`
}

// MarshalJSON writes the evaluation for checkpoints.
func (e Evaluation) MarshalJSON() ([]byte, error) {
	return json.Marshal(evaluationJSON{e.Step, e.Epoch, e.Samples, checkpoint.Float(e.Loss), e.Top1, e.Top5, e.Best, e.Took, e.Averaged})
}

// UnmarshalJSON is its inverse.
func (e *Evaluation) UnmarshalJSON(text []byte) error {
	var w evaluationJSON
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	*e = Evaluation{w.Step, w.Epoch, w.Samples, float64(w.Loss), w.Top1, w.Top5, w.Best, w.Averaged, w.Took}
	return nil
}
