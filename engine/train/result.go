package train

import (
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// ErrDiverged ends a run whose gradients remain NaN or infinite, or whose last evaluation is NaN or infinite.
var ErrDiverged = replica.ErrDiverged

// Result describes how a run ended.
type Result struct {
	Steps       int64
	Epochs      float64
	Interrupted bool    // the context was cancelled; the run is saved and can be resumed
	Survived    bool    // another rank or the data failed; rank 0 saved the last complete step
	OutOfTime   bool    // MaxDuration was reached; the run is saved and can be resumed
	GaveUp      string  // reason of EarlyStop; "" if early stopping did not end the run
	LastLoss    float64 // mean loss over the global batch of the last step; NaN before the first step
	LastEval    *Evaluation
	Best        *checkpoint.Best
	SamplesSeen int64         // number of samples over the whole run
	Checkpoint  string        // path of the last checkpoint that this process saved; "" if none
	Samples     int64         // number of samples that this process trained, over all ranks, including repeated steps
	TrainTime   time.Duration // training time of this process, including repeated steps; see Trained
	Trained     Trained       // steps of the whole run
	Skipped     int64         // number of steps over the whole run that were skipped because of NaN or Inf
	RollBacks   int64
	Replaced    int64 // number of unreadable samples over the whole run and all ranks; repeated steps count once
}
