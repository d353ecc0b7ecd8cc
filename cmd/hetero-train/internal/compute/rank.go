package compute

import (
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/ports"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// Rank is a process that computes on a device, alone or as one of several ranks.
type Rank struct {
	Process   *session.Session
	Device    device.Device
	Precision tensor.DType       // element type of this rank's activations
	Types     []devices.RankType // element types of all ranks
	Team      *process.Team      // nil in a run of one rank
	Telemetry *Telemetry         // nil if profile.enabled is not set
	// Links describes the links of all ranks, by rank. The links of a machine belong to its first rank.
	Links     [][]telemetry.Link
	hostLimit *memory.Limit // nil: not measured yet
	own       memory.Own    // addresses that hostLimit excludes
	released  int64         // value of releasedBytes when hostLimit was measured
	pidSpaces []string      // PID namespaces, by rank
	sharers   int           // number of ranks on this rank's GPU; 0 if unknown or without a GPU
	growth    int           // value of GOGC, percent; negative: off
}

// NewRank returns a rank without an open device.
func NewRank(cfg *config.Config, opts session.Options) *Rank {
	return &Rank{Process: session.New(cfg, opts)}
}

// Ports returns the ports on which this rank may accept connections of other ranks.
func (k *Rank) Ports() ports.Range { return process.Ports(k.Process.Cfg.Parallel) }
