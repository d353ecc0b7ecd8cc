package train

import (
	"context"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// Options configures a run. If an interval is 0, its action is off.
type Options struct {
	Replica  *replica.Replica
	Train    *data.Loader // training batches; Run moves the loader to the first batch of the run
	Eval     *data.Loader // held-out batches; nil: no evaluation
	Store    *checkpoint.Store
	Observer Observer

	Schedule     optim.Schedule // Run computes its Total
	Steps        int64          // number of optimizer steps of the whole run; 0: the steps of Epochs
	Epochs       int            // number of epochs; if Epochs and Steps are 0, the run ends after MaxDuration
	MaxDuration  time.Duration
	EvalInterval int  // number of epochs between evaluations
	EvalAverage  bool // evaluate the averaged weights, if there are averages

	EarlyStop EarlyStop
	// NormsInterval is the number of steps between records with norms of single parameters. It needs
	// replica.Options.Norms. 0 means never.
	NormsInterval int64

	// SaveSteps and SaveInterval are the number of steps and the time between checkpoints. Only the values of rank 0
	// have an effect.
	SaveSteps    int64
	SaveInterval time.Duration
	// SaveRequests returns the number of requests for a checkpoint (signals) on this rank so far. After a request on
	// any rank, the run saves a checkpoint. nil means no requests.
	SaveRequests func() int64
	// SaveAgreed is called on every rank before a requested checkpoint is saved. It may be nil.
	SaveAgreed func()
	Beside     bool // write checkpoints in the background, except the final one
	KeepBest   bool
	BestMetric string // key of the metric that determines the best evaluation; "" or "auto": task.Report.Best
	// Disk is the queue of records that wait for the disk. nil means that no record ever waits.
	Disk Disk

	NaNPatience  int // number of consecutive skipped steps after which the run rolls back
	NaNRollbacks int // number of roll-backs after which the run ends with ErrDiverged

	// Splitter decides the shares of the ranks. nil means that shares are fixed.
	Splitter Splitter
	// BeforeStep is called before each optimizer step, on the training goroutine. Steps count from 1. The time of the
	// call is not included in the time of the step. BeforeStep may be nil.
	BeforeStep func(step int64)
	// CompareSteps is the number of steps between comparisons of the ranks' replicas. 0 means that the ranks are
	// compared only at the start and before each save. CompareShare limits the fraction of the time that the
	// comparisons between saves may take; 0 means no limit.
	CompareSteps int64
	CompareShare float64
	// CompareData compares the data that the ranks have read so far, at the same times as the parameters. The argument
	// whole is true at the end of the run. If CompareData returns an error on one rank, it must return an error on all
	// ranks. The run then ends without a save. If the error is a data.ErrDiffers, the checkpoints of this process are
	// quarantined. nil means no comparison.
	CompareData func(ctx context.Context, whole bool) error
	// Telemetry returns the values of this rank's sensors, once per step. It must not block. nil means no telemetry.
	Telemetry func() telemetry.Sample
	// Links returns the traffic of this rank's links for the report of the next step, once per step. It must not block.
	// nil means that no traffic is measured.
	Links func() LinkReport

	// Timed gets the times of all ranks in the last step for which StepDone was called. Run calls it when all of these
	// times are known: directly before the next StepDone, or before an evaluation, a save, a roll-back or the end of
	// the run. After the loss of a rank, the times remain unknown. The argument times is valid only during the call.
	// Timed may be called again with the same times, and may be nil.
	Timed func(times []replica.StepTimes)

	// MaxReplaced limits the number of unreadable samples (data.Skip) in an epoch or an evaluation, summed over all
	// ranks. If there are more, the run saves and ends with a *data.Fault, on all ranks after the same step. A run that
	// is resumed from this checkpoint ends immediately. 0 means no limit.
	MaxReplaced int

	// Resume is the state of the checkpoint to resume from. Its weights are already loaded into the replica. nil
	// starts a new run. With peers, all ranks use the state and weights of rank 0.
	Resume *checkpoint.State
	// Foreign means that Resume is a checkpoint of another run, so this run has no checkpoint of its own yet.
	Foreign bool
	// Leaving is called after the last step and before the final save. It may be called more than once, and may be
	// nil.
	Leaving func()
	// Template contains the fields of the checkpoint state that Run does not set: program, configuration, seed.
	Template checkpoint.State
}

// Splitter decides the shares of the ranks. Every rank has a Splitter, and all of them must return the same shares.
type Splitter interface {
	// Split returns the samples of a micro-batch for each rank, or nil for no change. It is called before every
	// optimizer step. The argument step is the number of steps done. The argument ranks contains the reports of all
	// ranks about the last step, bit-equal on all ranks. It is nil before the first step, and valid only during the
	// call.
	//
	// The argument settling is true while a change is in progress; the result is then ignored. During a change, each
	// rank compiles plans for its new share in the background. All ranks switch at the same step, after all of them are
	// ready.
	Split(step int64, ranks []RankStep, settling bool) []int
}
