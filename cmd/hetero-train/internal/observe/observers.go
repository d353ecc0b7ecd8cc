package observe

import (
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/train"
)

// Observers is an observer that calls each of several observers.
type Observers []train.Observer

func (o Observers) StepDone(r *train.StepRecord) {
	for _, x := range o {
		x.StepDone(r)
	}
}

func (o Observers) EvalDone(e train.Evaluation) {
	for _, x := range o {
		x.EvalDone(e)
	}
}

func (o Observers) RolledBack(step int64) {
	for _, x := range o {
		x.RolledBack(step)
	}
}

func (o Observers) Saving() {
	for _, x := range o {
		x.Saving()
	}
}

func (o Observers) Saved(s checkpoint.Saved, took time.Duration) {
	for _, x := range o {
		x.Saved(s, took)
	}
}

func (o Observers) Warn(err error) {
	for _, x := range o {
		x.Warn(err)
	}
}
