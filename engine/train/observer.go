package train

import (
	"encoding/json"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/task"
)

// Observer receives the events of a run. Its methods run on the training goroutine, so their time is part of the run.
type Observer interface {
	// StepDone is called after each optimizer step. The record is valid only during the call.
	StepDone(r *StepRecord)
	EvalDone(e Evaluation)
	// RolledBack is called when the run returns to an earlier step. The later steps will run again.
	RolledBack(step int64)
	// Saving is called before a checkpoint is written. The observer flushes data that must be as safe as the
	// checkpoint.
	Saving()
	Saved(s checkpoint.Saved, took time.Duration)
	// Warn reports an error that does not end the run.
	Warn(err error)
}

// StepRecord describes one optimizer step. Losses and counts are those of all ranks, times those of this rank.
type StepRecord struct {
	StepResult
	Ranks      []RankStep // each rank's part: this rank's as measured, the others' as reported
	Shares     []int      // samples of a micro-batch for each rank; nil for a single rank
	Changed    bool       // Shares differ from those of the previous step
	Step       int64      // optimizer steps done, including this one
	Total      int64      // steps of the run, 0 if unknown
	Epoch      int        // from 0
	EpochStep  int        // steps of this epoch done, including this one
	EpochSteps int
	Rate       float64 // learning rate
	Skipped    int64   // steps skipped so far because of NaN or Inf
	Time       time.Time

	EpochReplaced int // samples of this epoch, over all ranks, that could not be read
}

// Evaluation is the result of one evaluation: means over the targets that count of all samples.
type Evaluation struct {
	Step       int64
	Epoch      int
	Samples    int
	Loss       float64
	Top1, Top5 float64 // fractions, 0…1
	Best       bool    // the best so far
	Averaged   bool    // of the averaged weights
	Took       time.Duration
}

// Score returns the means, from which metrics follow.
func (e Evaluation) Score() task.Score { return task.Score{Loss: e.Loss, Top1: e.Top1, Top5: e.Top5} }

// evaluationJSON carries a loss that may be NaN or infinite, which JSON numbers cannot represent.
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

// UnmarshalJSON is the inverse of MarshalJSON.
func (e *Evaluation) UnmarshalJSON(text []byte) error {
	var w evaluationJSON
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	*e = Evaluation{w.Step, w.Epoch, w.Samples, float64(w.Loss), w.Top1, w.Top5, w.Best, w.Averaged, w.Took}
	return nil
}
