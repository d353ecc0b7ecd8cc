package replica

import (
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/plan"
)

// Footprint describes the device memory, in bytes, and the arithmetic of this rank for a share of Samples samples.
type Footprint struct {
	Samples int `json:"samples"`

	// Bytes that do not depend on Samples.
	Weights    int64 `json:"weights_bytes"`
	Statistics int64 `json:"statistics_bytes"`
	Gradients  int64 `json:"gradients_bytes"` // includes the buffer that sums over micro-batches
	Moments    int64 `json:"moments_bytes"`
	Averages   int64 `json:"averages_bytes"` // averages of weights and statistics (ema.decay)
	Norms      int64 `json:"norms_bytes"`    // copy of the weights, for the norms of single parameters
	Other      int64 `json:"other_bytes"`    // buffers for sums over ranks, staging, scratch memory of the optimizer

	// Arena is the memory of the passes, including evaluation. Usage lists the contents of the arena at its peak; its
	// field Gaps is the rest, including memory that only evaluation needs.
	Arena int64      `json:"arena_bytes"`
	Usage plan.Usage `json:"usage"`

	// Recomputed is the number of layers whose activations the backward pass computes again to save memory.
	Recomputed int `json:"recomputed_layers"`

	// FLOPs of one optimizer step on this rank, including recomputed layers.
	ForwardFLOPs  int64 `json:"forward_flops"`
	BackwardFLOPs int64 `json:"backward_flops"`

	// Account lists all memory of the rank: that of the device and that of its process.
	Account memory.Account `json:"account"`
}

// Fixed returns the bytes that do not depend on Samples.
func (f Footprint) Fixed() int64 {
	return f.Weights + f.Statistics + f.Gradients + f.Moments + f.Averages + f.Norms + f.Other
}

// Bytes returns the total device memory in bytes.
func (f Footprint) Bytes() int64 { return f.Fixed() + f.Arena }

// footprint returns the footprint of this rank with the given plans, without Account.
func (r *Replica) footprint(p *plans) Footprint {
	f := Footprint{Samples: p.samples, Weights: r.state.Values.Bytes(), Statistics: r.state.States.Bytes(),
		Gradients: r.state.Grads.Bytes(),
		Arena:     p.arenaBytes(), Recomputed: p.recomputed, Usage: p.train.plan.Usage()}
	if r.sum != nil {
		f.Gradients += r.sum.Bytes()
	}
	for _, m := range r.optim.Moments() {
		f.Moments += m.Flat.Bytes()
	}
	if r.mean != nil {
		f.Averages = r.mean.Bytes()
	}
	if r.norms != nil {
		f.Norms = r.norms.Bytes()
	}
	f.Other = r.fixedBytes() - f.Fixed()
	u := &f.Usage
	u.Inputs += p.staging
	u.Gaps = f.Arena - u.Activations - u.Copies - u.Inputs - u.Workspace
	for _, l := range p.train.plan.Launches() {
		switch l.Phase {
		case "forward":
			f.ForwardFLOPs += l.FLOPs * int64(r.opts.Accumulation)
		case "backward":
			f.BackwardFLOPs += l.FLOPs * int64(r.opts.Accumulation)
		}
	}
	return f
}
