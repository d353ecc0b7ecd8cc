package replica

import (
	"bytes"
	"errors"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/timeline"
	"github.com/hetero-train/hetero-train/engine/train/shares"
)

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

// Scale returns the current loss scale, which is a power of two. If the run uses no loss scale, it returns 1.
func (r *Replica) Scale() float64 {
	if r.scale == nil {
		return 1
	}
	return r.scale.Scale
}

// Shares returns the owner of the shares of all ranks.
func (r *Replica) Shares() *shares.Owner { return r.shares }

// Group returns the group of the ranks that train together, or nil for a single rank.
func (r *Replica) Group() *gradsync.Group { return r.group }

// Recomputed returns the number of layers whose activations are recomputed with the current plans.
func (r *Replica) Recomputed() int { return r.now.recomputed }

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
