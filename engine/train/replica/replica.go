package replica

import (
	"bytes"
	"cmp"
	"errors"
	"time"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/timeline"
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

// MicroBatch returns the number of samples of one forward and backward pass, summed over all ranks.
func (o Options) MicroBatch() int { return o.BatchSize / o.Accumulation }

// Check returns an error if the graph of the task cannot be built. It does not need a device.
func (o Options) Check() error {
	g, err := o.graph(graphOf{training: true, samples: o.MicroBatch()})
	if err != nil {
		return err
	}
	return o.Freeze.Check(g)
}

// BatchStatistics returns the name of a value that the model computes over a micro-batch and keeps, such as a running
// mean of batch normalisation. It returns "" if there is none; the result of a step then does not depend on
// Accumulation. It does not need a device.
func (o Options) BatchStatistics() (string, error) {
	g, err := o.graph(graphOf{training: true, samples: o.MicroBatch()})
	if err != nil {
		return "", err
	}
	for _, s := range g.States {
		if !s.Frozen {
			return s.Name, nil
		}
	}
	return "", nil
}

// Replica is one model on one device. During training, one goroutine that is locked to its OS thread uses it.
type Replica struct {
	opts  Options
	dev   device.Device
	cache *plan.Cache
	plans *planCache
	state *plan.State
	optim *optim.Optimizer
	mean  *optim.Average // nil without averages
	norms *optim.Norms   // nil if no norms of single parameters are measured
	// unscaled is the factor that turns the gradient sum of the last step into the gradient of the mean loss.
	unscaled float64
	scale    *optim.LossScale // nil without a loss scale
	stream   device.Stream    // wraps plain while recorder is set
	arena    device.Buffer
	staging  int64  // bytes at the end of the arena for the next batch; 0 if batches are not staged
	feed     *feed  // nil if streams are synchronous; batches are then written directly to the inputs of a pass
	now      *plans // current plans, held in the cache
	part     *plans // plans of a smaller micro-batch for the current shares, held in the cache; nil if none are needed
	ready    *pass  // pass whose copies of the parameters belong to this step
	// labels of the step, which only its first micro-batch has; see data.Batch.StepLabels
	stepLabels int
	partial    bool // the sums over ranks have the shares of a smaller micro-batch
	exact      bool // passes compute statistics over samples, so they must not contain padding
	clock      clock
	spare      device.Buffer // running statistics before the current step; nil without peers
	began      bool          // a step is in progress, and spare contains the statistics before it
	unread     []batchFacts  // micro-batches of this step whose results are not read yet

	recorder *timeline.Recorder // records the launches of a step; nil: no recording
	plain    device.Stream      // the unwrapped stream of the device; nil before the first Trace

	program  []memory.Part  // measured memory of the process without the model; nil if unknown
	limit    memory.Limit   // memory that this rank may use: Host.Limit, or a part of it by need
	reserved memory.Account // account of the largest share

	copied map[string]*bytes.Buffer // copies of tensors for the last background checkpoint, by tensor name

	group  *gradsync.Group // nil for a single rank
	sums   *gradsync.Sync  // sums over ranks; nil for a single rank
	counts *gradsync.Rows  // targets of each rank that count; nil for a single rank
	tally  *tally          // nil unless evaluations count predictions
	shares *shares.Owner

	// With accumulation: the buffer that sums the gradients of micro-batches, and the program that adds to it.
	sum        device.Buffer
	addition   *plan.Sequence // sum += gradients
	addProgram device.Program // of addition
	// sum = 0, for a last step of an epoch whose first micro-batch is also its last one; nil without such a step
	clearing     *plan.Sequence
	clearProgram device.Program

	closer closer
}

// closer frees resources in reverse order of acquisition.
type closer []func() error

func (c *closer) add(f func() error) { *c = append(*c, f) }

func (c *closer) close() error {
	var errs []error
	for i := len(*c) - 1; i >= 0; i-- {
		errs = append(errs, (*c)[i]())
	}
	*c = nil
	return errors.Join(errs...)
}

// graphOf describes the graph of a pass.
type graphOf struct {
	training   bool
	samples    int
	total      int // samples of the micro-batch over all ranks; 0: Options.MicroBatch
	recomputed int // number of the first layers whose activations the backward pass recomputes
	positions  int // number of positions of a sample; 0: all
}

// graph builds the graph of a pass.
func (o Options) graph(of graphOf) (*graph.Graph, error) {
	learns, training, n := o.Task, of.training, of.samples
	if of.positions > 0 {
		learns = learns.(task.Shortener).Shorten(of.positions)
	}
	return graph.Build(func(g *graph.Graph) {
		if o.Compute == tensor.F64 {
			g.UseF64()
		}
		g.Freeze(o.Freeze.Holds)
		net := &nn.Net{Graph: g, Training: training, Compute: o.Compute, GhostGroup: o.GhostGroup}
		if training {
			net.IDs, net.Key = g.Input(data.IDs, tensor.I64, n), g.Input(keyInput, tensor.U32, 2)
			net.Sync = o.Peers.statistics(g, cmp.Or(of.total, o.MicroBatch()))
		}
		logits := o.logits || !training && o.Task.Report().Classes > 0
		out := learns.Graph(net, n, logits)
		loss, weights := out.Loss, (*graph.Value)(nil)
		if training && o.ClassWeights != nil {
			weights = g.Input(classWeightInput, g.ParamType(), out.Loss.Shape[0])
			loss = g.Binary("weighted loss", device.Mul, out.Loss, weights)
		}
		g.Output("loss", loss)
		g.Output("position", out.Position)
		if logits {
			g.Output("logits", out.Logits)
		}
		if out.SampleLoss != nil {
			g.Output(sampleLoss, out.SampleLoss)
			g.Output(samplePosition, out.SamplePosition)
		}
		if training {
			g.Recompute(of.recomputed)
			terms := []graph.Term{{Loss: out.Loss, Scale: g.Input(scaleInput, g.ParamType(), 1), Weights: weights}}
			if out.SampleLoss != nil {
				terms = append(terms,
					graph.Term{Loss: out.SampleLoss, Scale: g.Input(sampleScaleInput, g.ParamType(), 1)})
			}
			g.DifferentiateTerms(terms...)
		}
	})
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

// PredictedBytes returns the device memory that the replica needs according to its plans. It equals the number of
// bytes that the device allocated.
func (r *Replica) PredictedBytes() int64 { return r.fixedBytes() + r.arena.Bytes() }

// fixedBytes returns the device memory of everything except activations.
func (r *Replica) fixedBytes() int64 {
	bytes := r.state.Bytes() + r.optim.Bytes()
	for _, b := range []device.Buffer{r.sum, r.spare} {
		if b != nil {
			bytes += b.Bytes()
		}
	}
	if r.mean != nil {
		bytes += r.mean.Bytes()
	}
	if r.norms != nil {
		bytes += r.norms.Bytes()
	}
	for _, s := range []*plan.Sequence{r.addition, r.clearing} {
		if s != nil {
			bytes += s.Bytes()
		}
	}
	if r.sums != nil {
		bytes += r.sums.Bytes()
	}
	return bytes
}

// ParamCount returns the number of elements of all parameters, without padding.
func (r *Replica) ParamCount() int64 { return r.count(func(plan.ParamInfo) bool { return true }) }

// FrozenCount returns the number of elements of the frozen parameters.
func (r *Replica) FrozenCount() int64 {
	return r.count(func(p plan.ParamInfo) bool { return p.Frozen })
}

func (r *Replica) count(of func(plan.ParamInfo) bool) (n int64) {
	for _, p := range r.state.Params.Params {
		if of(p) {
			n += p.Spec.Shape.Elements()
		}
	}
	return n
}

// FLOPs returns the nominal number of operations of this rank in one optimizer step.
func (r *Replica) FLOPs() int64 { return r.now.flops }

// Plan returns the training plan, for reports.
func (r *Replica) Plan() *plan.Plan { return r.now.train.plan }

// Options returns the options of the replica.
func (r *Replica) Options() Options { return r.opts }

// Device returns the device of the replica.
func (r *Replica) Device() device.Device { return r.dev }

// State returns the parameters, statistics and gradients on the device.
func (r *Replica) State() *plan.State { return r.state }

// Optimizer returns the optimizer, whose counter of steps a resumed run restores.
func (r *Replica) Optimizer() *optim.Optimizer { return r.optim }

// Averages returns the averages of the weights, or nil without averages.
func (r *Replica) Averages() *optim.Average { return r.mean }

// LossScale returns the loss scale, or nil if the run uses none.
func (r *Replica) LossScale() *optim.LossScale { return r.scale }

// Sync waits until the device has done all enqueued work.
func (r *Replica) Sync() error { return r.stream.Sync() }

// Close waits for a compilation in progress, then frees all resources in reverse order of allocation.
func (r *Replica) Close() error {
	var err error
	if r.plans != nil {
		err = r.plans.close()
	}
	return errors.Join(err, r.closer.close())
}

// RunTimed runs prepare, forward and backward on the last loaded batch. It adds the time of each launch to elapsed,
// in the order of Plan().Launches(). It does not update parameters.
func (r *Replica) RunTimed(elapsed []time.Duration) error {
	return r.now.train.plan.RunTimed(r.stream, elapsed)
}
