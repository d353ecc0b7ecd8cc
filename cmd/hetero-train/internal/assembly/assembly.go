package assembly

import (
	"sync/atomic"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/testbed"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/train"
)

// Run is a rank with the parts of a training that the configuration describes. A command opens the parts that it needs.
type Run struct {
	compute.Rank
	Data     *parts.Opened
	Loading  data.Options // of the training loader; it is opened last, because it holds batches in memory
	Replica  *train.Replica
	Folder   *experiment.Run // of the rank that leads; nil on the others
	Learnt   derived         // of the rank that leads; nil on the others
	Lab      testbed.Testbed
	Steps    int64        // of the whole run; 0: only train.max_seconds ends the run
	StepsPer int64        // of an epoch
	Epochs   int          // of the whole run; fewer than configured if the run uses data.fallback
	Agreed   atomic.Int64 // number of saves that SIGUSR1 to any rank has requested
}

// New returns a run whose parts are not open yet.
func New(cfg *config.Config, opts session.Options) *Run {
	return &Run{Rank: compute.NewRank(cfg, opts)}
}
