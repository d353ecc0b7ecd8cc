package run

import (
	"fmt"
	"log/slog"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/tuning"
)

// tuner chooses the number of micro-batches and the size of buckets for a run.
type tuner struct {
	tr             *training
	log            *slog.Logger
	peers          *replica.Peers // nil in a run of one rank
	micro, buckets bool           // whether the program chooses micro-batches, and buckets
	key            string         // key of the choice in the cache
	choice         tuning.Choice
	gradients      int64 // bytes of all gradients
	known          bool  // choice comes from a checkpoint or from the cache
}

// possible returns the numbers of micro-batches among which the program chooses.
func (t *tuner) possible() []int {
	c := t.tr.process.Cfg
	if !t.micro {
		return []int{c.Train.MicroBatches()}
	}
	return tuning.MicroBatches(c.Data.BatchSize, t.ranks(), parts.Mixing(c.Augment).Enabled())
}

func (t *tuner) ranks() int {
	if t.peers == nil {
		return 1
	}
	return t.peers.Group.Size()
}

// noCap is a size limit of buckets above the bytes of all gradients.
const noCap = 1 << 40

// capName describes buckets with this size limit, for the log.
func capName(bytes int64) string {
	switch bytes {
	case 0:
		return "buckets of fitted sizes"
	case noCap:
		return "buckets without a limit"
	}
	return fmt.Sprintf("buckets of %d MiB", bytes>>20)
}
