package assembly

import (
	"slices"
	"sync/atomic"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/testbed"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/content"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/spool"
)

// Run is a rank with the components of the training run that the configuration describes. A command opens only the
// components that it needs.
type Run struct {
	Process *session.Session // the same as Rank.Process
	Rank    *compute.Rank
	Data    *parts.Opened
	Loading data.Options // options of the training loader; it opens last, because it holds batches in memory
	Replica *replica.Replica
	Folder  *experiment.Run   // set on the leading rank only; nil on other ranks
	Learnt  derived           // set on the leading rank only; nil on other ranks
	print   parts.Fingerprint // fingerprint of Data; set on the leading rank only
	// saidRepaired: the log has stated that the data differ only in repaired samples
	saidRepaired bool
	Lab          testbed.Testbed
	Queue        *spool.Queue    // writes the files of the run later; nil: the caller writes them immediately
	Steps        int64           // number of steps of the whole run; 0 if only train.max_seconds ends the run
	StepsPer     int64           // number of steps of an epoch
	Epochs       int             // number of epochs of the whole run; a fallback data set can reduce it
	weights      []float64       // factors of the loss by class; nil: 1 for each class
	ledger       *content.Ledger // nil if all ranks read the same files
	reading      atomic.Bool     // a read of the data has not returned, so do not close the data
	Agreed       atomic.Int64    // number of checkpoints that SIGUSR1 has requested so far, on any rank
	// Unopened: the data set is not open, so its numbers of samples are unknown.
	Unopened bool
	Foreign  *Foreign // set if another program computes the steps; nil otherwise
}

// New returns a run without open components.
func New(cfg *config.Config, opts session.Options) *Run {
	return Of(compute.NewRank(cfg, opts))
}

// Of returns a run of a rank, without open components.
func Of(rank *compute.Rank) *Run { return &Run{Process: rank.Process, Rank: rank} }

// Notes returns sentences that a reader needs to interpret the numbers of the run.
func (r *Run) Notes() []string {
	notes := slices.Clone(r.Lab.Notes)
	if r.Data.Note != "" {
		notes = append(notes, r.Data.Note)
	}
	notes = append(notes, r.Data.LeftOutNotes()...)
	if info := r.Rank.Device.Info(); info.Modelled {
		notes = append(notes,
			"device "+info.Name+" is simulated and computes no values: losses and accuracies have no meaning")
	}
	if r.Foreign != nil {
		notes = append(notes, r.Foreign.notes...)
	}
	return notes
}

// derived maps keys of settings to values that the configuration file does not contain. Examples are the type that
// "auto" selected, the data set that data.fallback selected, and the digest of a file. If two runs both have a derived
// value for a key, the program compares these values instead of the settings.
type derived map[string]string
