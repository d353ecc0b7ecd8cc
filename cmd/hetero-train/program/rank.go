package program

import (
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Rank is a process that computes on a device, by itself or as one of several.
type Rank struct {
	Session
	device    device.Device
	precision tensor.DType // of this rank's activations
	types     []rankType   // of all ranks
	team      *team        // nil for a run of one rank
	sharers   int          // ranks on this rank's GPU; 0: it is not known to be one
}

// newRank is a rank whose device is not open yet.
func newRank(cfg *config.Config, opts trainOptions) Rank {
	return Rank{Session: newSession(cfg, opts)}
}
