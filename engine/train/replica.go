package train

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/nn/random"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/timeline"
	"github.com/hetero-train/hetero-train/engine/train/shares"
)

// ReplicaOptions describes a task and how to train it.
type ReplicaOptions struct {
	Task         task.Task
	Compute      tensor.DType // type of activations: F32, BF16, F16 with a loss scale, F64 on the reference device
	LossScale    bool         // use a loss scale for any Compute; if one rank computes in F16, all ranks use the same scale
	GhostGroup   int          // number of samples of a BatchNorm group; 0: the whole micro-batch
	BatchSize    int          // global batch: number of samples of an optimizer step
	Accumulation int          // number of micro-batches of an optimizer step; divides BatchSize
	Freeze       nn.Freeze
	Seed         uint64
	Optimizer    optim.Options
	Average      optim.AverageOptions // averages of the weights; Decay 0: no averages
	Recompute    Recompute            // whether the backward pass recomputes activations to save memory
	MemoryBytes  int64                // device memory that decides how many layers are recomputed; 0: that of Peers or the device
	Norms        bool                 // permit measuring norms of single parameters, see Options.NormsInterval
	Peers        *Peers               // connections to other ranks; nil: a single rank

	// Positions is the number of positions of a sample, and Shorter are smaller numbers in ascending order. A step whose
	// longest sample (data.Batch.Length) fits into one of them computes only this number of positions. The task must be a
	// task.Shortener. nil: all steps compute all positions.
	Positions int
	Shorter   []int

	// ClassWeights are the factors of the loss of a training sample by its class; nil: 1. The loss of a step is the mean of the
	// products over the samples. Evaluations have no weights. Only tasks with a SoftmaxCrossEntropy support weights.
	ClassWeights []float64

	// NoValues leaves parameters and statistics without initial values, for a device that computes nothing. Drawing the values
	// of a large model takes minutes of CPU time.
	NoValues bool

	// ScoresOnly makes a Predictor compute losses only, without probabilities.
	ScoresOnly bool

	logits bool // the pass also outputs logits, for a Predictor
}

// microBatch returns the number of samples of one forward and backward pass, summed over all ranks.
func (o ReplicaOptions) microBatch() int { return o.BatchSize / o.Accumulation }

// Check returns an error if the graph of the task cannot be built. It does not need a device.
func (o ReplicaOptions) Check() error {
	g, err := o.graph(true, o.microBatch(), 0, 0)
	if err != nil {
		return err
	}
	return o.Freeze.Check(g)
}

// BatchStatistics returns the name of a value that the model computes over the samples of a micro-batch and keeps, such
// as a running mean of batch normalisation. It returns "" if there is none; the result of a step then does not depend on
// Accumulation. It does not need a device.
func (o ReplicaOptions) BatchStatistics() (string, error) {
	g, err := o.graph(true, o.microBatch(), 0, 0)
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
	opts   ReplicaOptions
	dev    device.Device
	cache  *plan.Cache
	plans  *planCache
	state  *plan.State
	optim  *optim.Optimizer
	mean   *optim.Average   // nil without averages
	norms  *optim.Norms     // nil if no norms of single parameters are measured
	scale  *optim.LossScale // nil without a loss scale
	stream device.Stream    // wraps plain while recorder is set
	arena  device.Buffer
	feed   *feed  // nil if streams are synchronous; batches are then written directly to the inputs of a pass
	now    *plans // current plans, held in the cache
	clock  clock
	spare  device.Buffer // running statistics before the current step; nil without peers
	began  bool          // a step is in progress, and spare contains the statistics before it
	unread []batchFacts  // micro-batches of this step whose results are not read yet

	recorder *timeline.Recorder // records the launches of a step; nil: no recording
	plain    device.Stream      // the unwrapped stream of the device; nil before the first Trace

	copied map[string]*bytes.Buffer // copies of tensors for the last background checkpoint, by tensor name

	group  *gradsync.Group // nil for a single rank
	sums   *gradsync.Sync  // sums over ranks; nil for a single rank
	counts *gradsync.Rows  // targets of each rank that count; nil for a single rank
	tally  *tally          // nil unless evaluations count predictions
	shares *shares.Owner

	// With accumulation: the buffer that sums the gradients of micro-batches, and the program that adds to it.
	sum        device.Buffer
	addProgram device.Program

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

// NewReplica builds graphs and plans, allocates all memory, and sets the initial values.
func NewReplica(dev device.Device, opts ReplicaOptions) (_ *Replica, err error) {
	r := &Replica{opts: opts, dev: dev, cache: plan.NewCache(dev)}
	if opts.LossScale || opts.Compute == tensor.F16 {
		r.scale = optim.NewLossScale()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	r.closer.add(r.cache.Close)
	if opts.Accumulation < 1 || opts.BatchSize < 1 || opts.BatchSize%opts.Accumulation != 0 {
		return nil, fmt.Errorf("replica: batch size %d, want a multiple of the %d micro-batches", opts.BatchSize, opts.Accumulation)
	}
	if err := opts.checkShorter(); err != nil {
		return nil, err
	}
	if r.stream, err = dev.NewStream(); err != nil {
		return nil, fmt.Errorf("replica: %w", err)
	}
	r.closer.add(r.stream.Close)
	if err := opts.checkPeers(); err != nil {
		return nil, err
	}
	if opts.Peers != nil {
		r.group = opts.Peers.Group
	}
	first, err := r.chooseLayout()
	if err != nil {
		return nil, err
	}
	r.plans = &planCache{dev: dev, kernels: r.cache, params: first.Params(), accumulation: opts.Accumulation, targets: opts.Task.Targets(), shorter: opts.Shorter, graph: opts.graph, recompute: opts.Recompute, predicts: opts.Task.Report().Classes > 0, sampled: opts.Task.Report().SampleTarget, classWeights: opts.ClassWeights,
		cached: map[int]*plans{}, capacity: cachedPlans}
	if err := errors.Join(r.allocate(), first.Free()); err != nil {
		return nil, err
	}
	return r, r.initialize()
}

// chooseLayout compiles a first plan, which determines the layout of parameters. The caller frees the plan. With
// peers, the plan is for the whole micro-batch, so that all ranks choose the same layout, regardless of their shares.
func (r *Replica) chooseLayout() (first *plan.Plan, err error) {
	g, err := r.opts.graph(true, r.opts.microBatch(), 0, 0)
	if err != nil {
		return nil, err
	}
	if first, err = plan.Compile(r.cache, g, nil); err != nil {
		return nil, err
	}
	same := true
	if r.group != nil {
		same, err = gradsync.SameLayouts(context.Background(), r.group.Grads, r.dev, first.Params())
	}
	if err == nil && !same { // different devices have only plain layouts in common
		if err = first.Free(); err == nil {
			first, err = plan.CompilePlain(r.cache, g)
		}
	}
	if err != nil {
		return nil, err
	}
	return first, nil
}

// graph builds the graph of a pass over n samples. The backward pass recomputes the activations of the first layers;
// recomputed is their number.
func (o ReplicaOptions) graph(training bool, n, recomputed, positions int) (*graph.Graph, error) {
	learns := o.Task
	if positions > 0 {
		learns = learns.(task.Shortener).Shorten(positions)
	}
	return graph.Build(func(g *graph.Graph) {
		if o.Compute == tensor.F64 {
			g.UseF64()
		}
		g.Freeze(o.Freeze.Holds)
		net := &nn.Net{Graph: g, Training: training, Compute: o.Compute, GhostGroup: o.GhostGroup}
		if training {
			net.IDs, net.Key = g.Input(data.IDs, tensor.I64, n), g.Input(keyInput, tensor.U32, 2)
			net.Sync = o.Peers.statistics(g, o.microBatch())
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
			g.Recompute(recomputed)
			terms := []graph.Term{{Loss: out.Loss, Scale: g.Input(scaleInput, g.ParamType(), 1), Weights: weights}}
			if out.SampleLoss != nil {
				terms = append(terms, graph.Term{Loss: out.SampleLoss, Scale: g.Input(sampleScaleInput, g.ParamType(), 1)})
			}
			g.DifferentiateTerms(terms...)
		}
	})
}

// checkShorter returns an error if the shorter passes are not those of shorter samples.
func (o ReplicaOptions) checkShorter() error {
	if len(o.Shorter) == 0 {
		return nil
	}
	if _, ok := o.Task.(task.Shortener); !ok {
		return fmt.Errorf("replica: a task of type %T cannot be shortened", o.Task)
	}
	if !slices.IsSorted(o.Shorter) || o.Shorter[0] < 1 || o.Shorter[len(o.Shorter)-1] >= o.Positions {
		return fmt.Errorf("replica: passes for %v positions, want ascending numbers from 1 to %d", o.Shorter, o.Positions-1)
	}
	return nil
}

// targets returns the number of targets of a global batch, including targets that do not count.
func (o ReplicaOptions) targets() int { return o.BatchSize * o.Task.Targets() }

// checkPeers returns an error for options with which ranks cannot train together.
func (o ReplicaOptions) checkPeers() error {
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

// allocate allocates all device memory that the replica will use.
func (r *Replica) allocate() (err error) {
	defer func() {
		if r.arena == nil && errors.Is(err, device.ErrOutOfMemory) && !errors.As(err, new(*MemoryError)) {
			err = fmt.Errorf("%w: the memory is too small even without activations, so a smaller batch does not help: use a smaller model, an optimizer with less state (optimizer.name, ema.decay), or a device with more memory", err)
		}
	}()
	if r.state, err = plan.NewState(r.cache, r.plans.params); err != nil {
		return err
	}
	r.closer.add(r.state.Close)
	if err := r.allocateSpare(); err != nil {
		return err
	}
	grads := r.state.Grads
	if r.opts.Accumulation > 1 {
		if err := r.allocateSum(); err != nil {
			return err
		}
		grads = r.sum
	}
	if r.optim, err = optim.New(r.cache, r.state, grads, r.opts.Optimizer); err != nil {
		return err
	}
	r.closer.add(r.optim.Close)
	if r.opts.Average.Decay != 0 {
		if r.mean, err = optim.NewAverage(r.cache, r.optim, r.opts.Average); err != nil {
			return err
		}
		r.closer.add(r.mean.Close)
	}
	if r.opts.Norms {
		if r.norms, err = optim.NewNorms(r.cache, r.state, grads); err != nil {
			return err
		}
		r.closer.add(r.norms.Close)
	}
	if err := r.openSync(grads); err != nil {
		return err
	}
	if err := r.openTally(); err != nil {
		return err
	}
	if free, known := r.memoryLeft(); known {
		r.plans.free = max(free, 1)
	}
	if most := r.opts.MemoryBytes; most > 0 {
		used, _ := r.dev.Memory()
		r.plans.free = max(most-used, 1)
	}
	if err := r.settleShares(); err != nil {
		return err
	}
	if err := r.allocateArena(); err != nil {
		return err
	}
	if err := r.tuneSync(grads); err != nil {
		return err
	}
	r.plans.useMemory(memory{r.arena, r.state, r.sums})
	r.now, err = r.plans.acquire(r.shares.Own())
	return err
}

// allocateArena allocates memory for the activations of the largest share. On a device that uses host memory, pages
// are committed when they are first touched.
func (r *Replica) allocateArena() (err error) {
	if r.now, err = r.plans.compiled(r.shares.Own()); err != nil {
		return err
	}
	largest, err := r.plans.compiled(max(r.shares.Most(), r.now.samples))
	if err != nil {
		return err
	}
	bytes := max(largest.arenaBytes(), r.now.arenaBytes(), 1)
	if r.arena, err = r.dev.Alloc(bytes); err != nil {
		return tooLarge(r.dev, largest.samples, bytes, err)
	}
	r.closer.add(r.arena.Free)
	r.unread = make([]batchFacts, 0, r.opts.Accumulation)
	if !r.dev.Info().Behind {
		return nil
	}
	if r.feed, err = newFeed(r.dev, max(largest.staging, r.now.staging)); err == nil {
		r.closer.add(r.feed.close)
	}
	return err
}

// MemoryError reports that the activations of a micro-batch do not fit into the memory of the device.
type MemoryError struct {
	Samples   int   // number of samples of the micro-batch
	Fit       int   // estimated number of samples that fit; 0 if not even one fits
	NeedBytes int64 // bytes of the activations
	HeldBytes int64 // bytes of parameters, optimizer state and other allocations on the device
	FreeBytes int64 // bytes of device memory that are free
	Err       error // error of the device
}

func (e *MemoryError) Error() string {
	const gib = 1 << 30
	return fmt.Sprintf("activations of %d samples need %.2f GiB, but the device has only %.2f GiB left in addition to %.2f GiB of parameters and optimizer state: about %d samples fit", e.Samples,
		float64(e.NeedBytes)/gib, float64(e.FreeBytes)/gib, float64(e.HeldBytes)/gib, e.Fit)
}

// Unwrap returns the device's error. Its chain contains device.ErrOutOfMemory.
func (e *MemoryError) Unwrap() error { return e.Err }

// tooLarge returns the error of a failed allocation of activations, with an explanation.
func tooLarge(dev device.Device, samples int, bytes int64, err error) error {
	if !errors.Is(err, device.ErrOutOfMemory) {
		return fmt.Errorf("replica: allocate %d bytes for activations: %w", bytes, err)
	}
	used, _ := dev.Memory()
	most := dev.Info().MemoryBytes
	if free := dev.Info().FreeBytes; free > 0 {
		most = free
	}
	e := &MemoryError{Samples: samples, NeedBytes: bytes, HeldBytes: used, FreeBytes: max(most-used, 0), Err: err}
	e.Fit = int(float64(e.FreeBytes) / float64(bytes) * float64(e.Samples)) // activations grow linearly
	return e
}

// allocateSum allocates the buffer that sums the gradients of micro-batches, and the program that adds to it: sum +=
// grads.
func (r *Replica) allocateSum() (err error) {
	params := r.state.Params
	if r.sum, err = r.state.NewFlat(params.TrainBytes); err != nil {
		return fmt.Errorf("replica: allocate %d bytes for the gradient sum: %w", params.TrainBytes, err)
	}
	r.closer.add(r.sum.Free)
	flat := device.Spec(params.DType, params.TrainElements())
	k, err := r.cache.Compile(device.Binary{Func: device.Add}, []device.TensorSpec{flat, flat}, []device.TensorSpec{flat})
	if err != nil {
		return fmt.Errorf("replica: gradient sum: %w", err)
	}
	inPlace := false
	for _, a := range k.InPlace() {
		inPlace = inPlace || a == device.Alias{Out: 0, In: 0}
	}
	if !inPlace {
		return errors.New("replica: gradient sum: the device cannot add in place")
	}
	whole := func(b device.Buffer) device.Region { return device.Region{Buffer: b, Bytes: flat.Size()} }
	r.addProgram, err = r.dev.NewProgram([]device.Step{{Launch: &device.Launch{Name: "gradient sum", Kernel: k,
		In: []device.Region{whole(r.sum), whole(r.state.Grads)}, Out: []device.Region{whole(r.sum)}}}})
	if err == nil {
		r.closer.add(r.addProgram.Close)
	}
	return err
}

// PredictedBytes returns the device memory that the replica needs according to its plans. It equals the number of
// bytes that the device allocated.
func (r *Replica) PredictedBytes() int64 {
	bytes := r.arena.Bytes() + r.state.Bytes() + r.optim.Bytes()
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

// initialize sets parameters and statistics. Each value is a function of the seed, the tensor's name and the
// position.
func (r *Replica) initialize() error {
	if r.opts.NoValues {
		return nil
	}
	set := func(flat device.Buffer, infos []plan.ParamInfo) error {
		for _, p := range infos {
			if err := r.state.Write(flat, p, initialValues(p, r.opts.Seed)); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.Join(set(r.state.Values, r.state.Params.Params), set(r.state.States, r.state.Params.States), r.resetAverages())
}

// initialValues returns the initial values of a tensor: plain layout, little endian. They are computed in double
// precision and rounded to the tensor's type. All CPUs compute pieces of a large tensor; a value depends only on its
// index.
func initialValues(p plan.ParamInfo, seed uint64) []byte {
	const piece = 1 << 16 // elements: about 2 ms
	n := int(p.Spec.Shape.Elements())
	size := int(p.Spec.DType.Size())
	s, out := random.New(seed, p.Name), make([]byte, n*size)
	var next atomic.Int64
	fill := func() {
		for {
			from := int(next.Add(piece)) - piece
			if from >= n {
				return
			}
			initialPiece(p, s, from, out[from*size:min(from+piece, n)*size])
		}
	}
	var others sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (n+piece-1)/piece) - 1 {
		others.Go(fill)
	}
	fill()
	others.Wait()
	return out
}

// initialPiece writes the values from index `from` on to out.
func initialPiece(p plan.ParamInfo, s random.Stream, from int, out []byte) {
	size := int(p.Spec.DType.Size())
	for at := 0; at < len(out); at += size {
		i, v := uint64(from+at/size), p.Init.A
		switch p.Init.Kind {
		case graph.Gaussian:
			v = s.Gaussian(i, p.Init.A, p.Init.B)
		case graph.Given:
			v = (*p.Init.Values)[i]
		case graph.Interval:
			v = s.Between(i, p.Init.A, p.Init.B)
		}
		if p.Spec.DType == tensor.F64 {
			binary.LittleEndian.PutUint64(out[at:], math.Float64bits(v))
		} else {
			binary.LittleEndian.PutUint32(out[at:], math.Float32bits(float32(v)))
		}
	}
}

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
