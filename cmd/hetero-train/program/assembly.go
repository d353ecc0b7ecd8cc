package program

import (
	"sync/atomic"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/train"
)

// Run is a rank with the parts of a training that the configuration describes. A command opens the parts that it needs.
type Run struct {
	Rank
	data     *parts.Opened
	loading  data.Options // of the training loader, which is made last: it holds batches in memory
	replica  *train.Replica
	folder   *experiment.Run // of the rank that leads; nil on the others
	learnt   derived         // likewise
	lab      labRun
	steps    int64        // of the whole run; 0: train.max_seconds ends it
	stepsPer int64        // of an epoch
	epochs   int          // of the whole run, fewer than configured on a fallback
	agreed   atomic.Int64 // saves that a SIGUSR1 to any rank has brought
}

// newRun is a run whose parts are not open yet.
func newRun(cfg *config.Config, opts trainOptions) *Run {
	return &Run{Rank: newRank(cfg, opts)}
}
