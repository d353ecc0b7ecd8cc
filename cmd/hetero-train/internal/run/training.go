package run

import (
	"fmt"
	"path/filepath"
	"sync/atomic"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/notify"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/rebalance"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/checkpoint/bucket"
	"github.com/hetero-train/hetero-train/engine/cluster/supervisor"
)

// training is the state of one process that trains.
type training struct {
	process *session.Session
	rank    *compute.Rank
	run     *assembly.Run
	// state of the checkpoint that rank 0 has loaded; nil for a new run, and on other ranks
	resume      *checkpoint.State
	records     *observe.Records       // set on rank 0 only; nil on other ranks
	timed       *observe.Timed         // set on rank 0 only; nil on other ranks
	tracing     *observe.Tracing       // nil if the configuration selects no steps
	balancing   *rebalance.Balancer    // nil in a run of one rank
	scores      *rebalance.Balancer    // compute scores of all ranks, also in a run of one rank
	tracking    *observe.Tracking      // nil if tracking.mlflow is empty, and on other ranks
	exporter    *observe.Exporter      // nil if this rank serves no metrics
	sender      *notify.Sender         // nil if table [notify] names no receiver, and on other ranks
	watch       *notify.Watch          // nil if sender is nil
	folder      atomic.Pointer[string] // path of the run's folder, for events; nil before the run has one
	bucketBytes int64                  // size limit of gradient buckets that tune chose; 0: that of the configuration
	lifeline    *supervisor.Lifeline   // tells the supervisor that this rank is saving
	disk        disk                   // queue of records, and operations on the disk that have not returned
	uploads     *bucket.Uploader       // nil if checkpoint.upload is empty, and on other ranks
	resumedFrom string                 // folder of the bucket from which the run resumes; "": none
	saves       atomic.Int64           // number of SIGUSR1 signals of this process so far
	late        bool                   // train.max_seconds ended the run
	looping     atomic.Bool            // true since shortly before the training loop
}

// newTraining returns the training of a rank, without open components.
func newTraining(rank *compute.Rank) *training {
	return &training{process: rank.Process, rank: rank, run: assembly.Of(rank)}
}

// finished reports whether the run is complete. All ranks get the same result.
func (tr *training) finished() bool {
	if tr.rank.Team != nil {
		return tr.rank.Team.Finished.Run
	}
	return tr.run.Folder != nil && tr.run.Folder.Finished != nil
}

// logError writes the error of any rank except rank 0 to the log of this rank.
func (tr *training) logError(err error) error {
	if err != nil && !tr.rank.Team.Leads() {
		fmt.Fprintf(tr.process.Opts.LogFile, "%v\n", err)
	}
	return err
}

// noteFolder sets the folder of the run that later events name.
func (tr *training) noteFolder(dir string) {
	if whole, err := filepath.Abs(dir); err == nil {
		dir = whole
	}
	tr.folder.Store(&dir)
}
