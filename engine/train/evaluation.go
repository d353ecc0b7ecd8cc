package train

import (
	"encoding/json"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/task"
)

// Evaluation is the result of one evaluation: means over all targets that count.
type Evaluation struct {
	Step       int64
	Epoch      int
	Samples    int
	Loss       float64
	Top1, Top5 float64 // fractions, 0…1
	F1         float64 // 0…1; 0 unless the task has classes to count
	MacroF1    float64 // mean of the F1 of all classes, 0…1; 0 unless the task has classes to count
	Never      []int   // classes that have samples, but are never predicted; nil unless the task has classes to count
	SampleLoss float64 // part of Loss, and fraction 0…1, of the further targets of samples (task.Report.SampleTarget)
	SampleTop1 float64
	MultiLabel bool // a sample may have any number of the classes; there is no Top5 then
	Best       bool // the result is the best so far
	Averaged   bool // the evaluation used the averaged weights
	Took       time.Duration
}

// Score returns the means from which metrics are computed.
func (e Evaluation) Score() task.Score {
	return task.Score{Loss: e.Loss, Top1: e.Top1, Top5: e.Top5, F1: e.F1, MacroF1: e.MacroF1, SampleLoss: e.SampleLoss,
		SampleTop1: e.SampleTop1}
}

// evaluationJSON represents an evaluation in JSON. Its loss may be NaN or infinite, which JSON numbers cannot
// represent.
type evaluationJSON struct {
	Step     int64            `json:"step"`
	Epoch    int              `json:"epoch"`
	Samples  int              `json:"samples"`
	Loss     checkpoint.Float `json:"loss"`
	Top1     float64          `json:"top1"`
	Top5     *float64         `json:"top5,omitempty"`
	Best     bool             `json:"best"`
	Took     time.Duration    `json:"took_ns"`
	Averaged bool             `json:"averaged,omitempty"`
	F1       float64          `json:"f1,omitempty"`
	MacroF1  float64          `json:"macro_f1,omitempty"`
	Never    []int            `json:"never_predicted,omitempty"`

	SampleLoss checkpoint.Float `json:"sample_loss,omitempty"`
	SampleTop1 float64          `json:"sample_top1,omitempty"`
	MultiLabel bool             `json:"multi_label,omitempty"`
}

// MarshalJSON encodes the evaluation for checkpoints.
func (e Evaluation) MarshalJSON() ([]byte, error) {
	top5 := &e.Top5
	if e.MultiLabel {
		top5 = nil
	}
	return json.Marshal(evaluationJSON{e.Step, e.Epoch, e.Samples, checkpoint.Float(e.Loss), e.Top1, top5, e.Best,
		e.Took, e.Averaged, e.F1, e.MacroF1, e.Never, checkpoint.Float(e.SampleLoss), e.SampleTop1, e.MultiLabel})
}

// UnmarshalJSON decodes an evaluation that MarshalJSON encoded.
func (e *Evaluation) UnmarshalJSON(text []byte) error {
	var w evaluationJSON
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	*e = Evaluation{Step: w.Step, Epoch: w.Epoch, Samples: w.Samples, Loss: float64(w.Loss), Top1: w.Top1,
		MultiLabel: w.MultiLabel, F1: w.F1, MacroF1: w.MacroF1, Never: w.Never,
		SampleLoss: float64(w.SampleLoss), SampleTop1: w.SampleTop1, Best: w.Best, Averaged: w.Averaged, Took: w.Took}
	if w.Top5 != nil {
		e.Top5 = *w.Top5
	}
	return nil
}
