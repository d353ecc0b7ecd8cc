package replica

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train/shares"
)

// Options describes a task and how to train it.
type Options struct {
	Task    task.Task
	Compute tensor.DType // type of activations: F32, BF16, F16 with a loss scale, F64 on the reference device
	// use a loss scale for any Compute; if one rank computes in F16, all ranks use the same scale
	LossScale    bool
	GhostGroup   int // number of samples of a BatchNorm group; 0: the whole micro-batch
	BatchSize    int // global batch: number of samples of an optimizer step
	Accumulation int // number of micro-batches of an optimizer step; divides BatchSize
	// LastBatch is the number of samples of the last step of each epoch, if this step is smaller than the others
	// (data.Options.KeepLast); 0: all steps have BatchSize samples.
	LastBatch   int
	Freeze      nn.Freeze
	Seed        uint64
	Optimizer   optim.Options
	Average     optim.AverageOptions // averages of the weights; Decay 0: no averages
	Recompute   Recompute            // whether the backward pass recomputes activations to save memory
	CachedPlans int                  // number of shares whose plans the replica keeps; 0: 32
	// device memory that determines how many layers are recomputed; 0: the memory that Peers or the device states
	MemoryBytes int64
	Norms       bool   // permit measuring norms of single parameters, see StepOptions.Norms
	Peers       *Peers // connections to other ranks; nil: a single rank

	// Positions is the number of positions of a sample, and Shorter contains smaller numbers in ascending order. If the
	// longest sample of a step (data.Batch.Length) fits into one of these numbers, the step computes only this number
	// of positions. The task must be a task.Shortener. If Shorter is nil, all steps compute all positions.
	Positions int
	Shorter   []int

	// ClassWeights are the factors of the loss of a training sample by its class; nil: 1. The loss of a step is the
	// mean of the products over the samples. Evaluations have no weights. Only tasks with a SoftmaxCrossEntropy support
	// weights.
	ClassWeights []float64

	// Host describes the memory of this process. A batch that does not fit is refused before the model has memory. nil:
	// only the memory of the device is checked.
	Host *Host

	// Planning is for a device that computes nothing. Parameters and statistics get no initial values, because drawing
	// those of a large model takes minutes of CPU time. A batch that does not fit is not refused.
	Planning bool

	// ScoresOnly makes a Predictor compute losses only, without probabilities.
	ScoresOnly bool

	logits bool // the pass also outputs logits, for a Predictor
}

// Host describes the memory of this process for Options.Host.
type Host struct {
	Limit memory.Limit // memory that this process may use
	// Pool is the name of the memory of which Limit is a part. Ranks with the same name divide this memory. "": no
	// other rank uses it.
	Pool string
	// Program measures the memory of the process. The replica calls it once, before the model has memory.
	Program func() []memory.Part
	// Parts returns the memory that the run needs in addition to the replica, for example for the batches of loaders.
	// The argument is this rank's share of a micro-batch.
	Parts func(share int) []memory.Part
	// Optional lists memory that the run uses only if enough memory remains.
	Optional []memory.Part
	// Copies states that this rank writes checkpoints from a copy of the tensors if there is enough memory for the
	// copy.
	Copies bool
	// AddressesLeft returns the addresses in bytes that this process can still reserve for data. limited is false if
	// the process has no limit of addresses. nil: no limit.
	AddressesLeft func() (bytes int64, limited bool)
}

// Recompute selects activation recomputation (activation checkpointing): the backward pass computes activations of
// the forward pass again instead of reading them from memory. This saves memory and costs at most one additional
// forward pass. It changes no bit of the result.
type Recompute uint8

// The choices for a run. A plan for fewer samples may need no recomputation even if a plan for more samples needs it.
const (
	// the smallest number of layers with which the plans fit into memory
	RecomputeShort Recompute = iota
	RecomputeNever
	RecomputeAlways // all layers except the last one
)

// Peers connects the replicas of the ranks that train together. All fields except a rank's own resources are equal on
// all ranks. A replica never changes them; it keeps the current shares in an owner (Replica.Shares).
type Peers struct {
	Group *gradsync.Group

	Shares []int // first shares: samples of a micro-batch for each rank; their sum is the micro-batch
	// Divide computes the first shares from the largest share of each rank. Its result must be equal on all ranks.
	// nil: the first shares are Shares. If both are set, Divide returns Shares or an error.
	Divide func(limits []int) ([]int, error)
	// Preview computes the first shares like Divide, without effects. If it is set, each rank keeps memory for data
	// that makes training faster (leaveRoom). The limits of the ranks may then be too low to take over the samples of a
	// lost rank.
	Preview func(limits []int) ([]int, error)
	// MaxShare is the largest share that this rank may get. It determines the memory that the rank allocates. 0 means
	// the whole micro-batch if Divide is set, and the rank's entry of Shares otherwise. A rank whose memory holds fewer
	// samples has a lower limit.
	MaxShare    int
	MemoryBytes int64 // device memory that this rank may use, if ranks share the device; 0: all memory

	// batch normalisation uses the samples of all ranks; otherwise the rank's own samples or groups of them
	SyncNorm bool

	Wire       tensor.DType // element type of transferred gradients: bf16, or Invalid for the type of the gradients
	CapBytes   int64        // size limit of a bucket; 0: choose buckets by timing passes and all-reduces at the start
	Sequential bool         // all-reduces start only after the backward pass
}

// MicroBatch returns the number of samples of one forward and backward pass, summed over all ranks.
func (o Options) MicroBatch() int { return o.BatchSize / o.Accumulation }

// wholeGroup returns the unit of shares: the number of samples of a group of batch normalisation, or 1.
func (o Options) wholeGroup() int {
	if o.GhostGroup > 0 && (o.Peers == nil || !o.Peers.SyncNorm) {
		return o.GhostGroup
	}
	return 1
}

// planRanks returns this rank and the number of ranks if passes exchange statistics: the plans then depend on both.
func (o Options) planRanks() (rank, ranks int) {
	if o.Peers == nil || !o.Peers.SyncNorm {
		return 0, 0
	}
	return o.Peers.Group.Rank(), o.Peers.Group.Size()
}

// targets returns the number of targets of a global batch, including targets that do not count.
func (o Options) targets() int { return o.BatchSize * o.Task.Targets() }

// fraction returns the fraction of the positions of a full sample that a step computes if its longest sample has the
// given length. It is equal on all ranks, also on those without samples.
func (o Options) fraction(length int) float64 {
	for _, positions := range o.Shorter {
		if length > 0 && length <= positions {
			return float64(positions) / float64(o.Positions)
		}
	}
	return 1
}

// rules returns the rules that the shares of several ranks must satisfy.
func (o Options) rules() shares.Rules {
	g := o.Peers.Group
	return shares.Rules{Rank: g.Rank(), Ranks: g.Size(), Batch: o.MicroBatch(), Unit: o.wholeGroup()}
}

// checkShorter returns an error if the task does not permit shorter passes, or if Options.Shorter is invalid.
func (o Options) checkShorter() error {
	if len(o.Shorter) == 0 {
		return nil
	}
	if _, ok := o.Task.(task.Shortener); !ok {
		return fmt.Errorf("replica: a task of type %T cannot be shortened", o.Task)
	}
	if !slices.IsSorted(o.Shorter) || o.Shorter[0] < 1 || o.Shorter[len(o.Shorter)-1] >= o.Positions {
		return fmt.Errorf("replica: passes for %v positions, want ascending numbers from 1 to %d", o.Shorter,
			o.Positions-1)
	}
	return nil
}

// checkPeers returns an error for options with which ranks cannot train together.
func (o Options) checkPeers() error {
	p := o.Peers
	switch {
	case p == nil:
		return nil
	case p.Group == nil || p.Group.Grads == nil || p.Group.Stats == nil:
		return errors.New("replica: peers need two communicators")
	case p.Divide != nil:
		return nil // settleShares checks the shares that Divide returns
	}
	return o.rules().Check(p.Shares)
}

// first returns this rank's first share, if Divide does not compute it.
func (p *Peers) first() int { return p.Shares[p.Group.Rank()] }

// most returns the largest share that this rank may get, without regard to memory.
func (p *Peers) most(micro int) int {
	switch {
	case p.MaxShare > 0 && p.Divide == nil:
		return max(min(p.MaxShare, micro), p.first())
	case p.MaxShare > 0:
		return min(p.MaxShare, micro)
	case p.Divide == nil:
		return p.first()
	}
	return micro
}
