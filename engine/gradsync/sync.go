package gradsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Default sizes of buckets in bytes, as in PyTorch's DistributedDataParallel.
const (
	DefaultCapBytes   = 25 << 20
	DefaultFirstBytes = 1 << 20
)

// Options configure the sum of gradients.
type Options struct {
	// Group contains the communicators. Group.Grads transfers the buckets. Group.Stats transfers the values that batch
	// normalisation exchanges during the forward and backward passes. Group.Stats is nil if no plan of the model has
	// such an exchange. It may equal Group.Grads. The all-reduces of gradients then overlap the backward pass only
	// after its last exchange.
	Group *Group

	// Ends are the ends of buckets in bytes of the gradient buffer, ascending. They must be ends of parameters. nil
	// means ByCap with FirstBytes and CapBytes, where 0 means the default.
	Ends                 []int64
	FirstBytes, CapBytes int64

	Wire       tensor.DType // element type in transit: bf16, or tensor.Invalid for the type of the gradients
	Sequential bool         // no overlap: buckets are sent after the backward pass, to measure the benefit of overlap

	// AverageStates averages the running statistics, which each rank updates from its own samples, once per step with
	// an all-reduce. The weights are the shares. Set it for batch normalisation over a rank's own samples, or over
	// groups of GhostGroup samples.
	AverageStates bool
	GhostGroup    int
}

// Sync sums the gradients of all ranks.
type Sync struct {
	opts   Options
	dev    device.Device
	ops    *plan.Sequence // the launches of all reductions
	state  *plan.State
	into   device.Buffer
	group  *Group
	runs   []*reduction
	bucket []Bucket
	points []point // one for each exchange of the plans
	// for each point: a pass has used it since the last wait for the stream; only the training goroutine accesses met
	met []bool

	wire       device.Buffer // gradients in the type on the wire; nil if gradients are sent in their own type
	statesWire device.Buffer
	weight     device.Buffer // (1): this rank's weight in averaged states
	size       int           // number of ranks for which host has memory
	host       device.Buffer // samples (size) i32, then the weight
	stale      bool          // the device's copy of the weight is older than host

	tail, finish device.Program // tail runs before the all-reduces in Sequential mode; finish runs after them
	backwardEnd  device.Event
	modelled     bool          // the device models time
	reductions   []Reduction   // all-reduces of the last step, one for each element of runs
	exchanged    time.Duration // time of the exchanges of this step that were already read from points

	// called for each operation between ranks; nil: no watcher
	watcher func(gradients bool, name string, begun, ended time.Time, bytes int64)

	// stream of the passes; nil before them, or if the stream does not measure waiting
	stream       device.WaitingStream
	waitedBefore time.Duration // the stream's waiting time before the passes
	closer       []func() error
}

// reduction is one all-reduce of an optimizer step, with the device.Steps that run before and after it.
type reduction struct {
	after          int64 // bytes of gradients that must be final before the all-reduce starts
	before, behind []device.Step
	ready, reduced device.Event
	op             collective.Op
	name           string
	span           span
	bytes          int64
}

// point is a point of the passes at which ranks exchange values. All plans use its events.
type point struct {
	plan.Exchange
	ready, done device.Event
	span        *span
}

// New prepares the sum of state.Grads into the buffer that the optimizer reads: state.Grads, or the caller's sum of
// several micro-batches, of the same size. All ranks must use the same layout of parameters and the same options;
// Compare checks this.
func New(cache *plan.Cache, state *plan.State, into device.Buffer, o Options) (_ *Sync, err error) {
	s := &Sync{opts: o, dev: cache.Device, ops: plan.NewSequence(cache), state: state, into: into, group: o.Group,
		modelled: cache.Device.Info().Modelled}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("gradient sum: %w", err), s.Close())
		}
	}()
	if err := s.takeBuckets(); err != nil {
		return nil, err
	}
	s.closer = append(s.closer, s.ops.Close)
	if err := s.allocate(); err != nil {
		return nil, err
	}
	if o.AverageStates && state.Params.MovingBytes > 0 {
		if err := s.averageStates(); err != nil {
			return nil, fmt.Errorf("running statistics: %w", err)
		}
	}
	for i, b := range s.bucket {
		if err := s.reduce(fmt.Sprintf("bucket %d", i), b); err != nil {
			return nil, fmt.Errorf("bucket %d: %w", i, err)
		}
	}
	if err := s.ops.Err(); err != nil {
		return nil, err
	}
	return s, s.programs()
}

// takeBuckets applies defaults and computes the buckets.
func (s *Sync) takeBuckets() error {
	params, o := s.state.Params, &s.opts
	if o.Wire == tensor.Invalid {
		o.Wire = params.DType
	}
	if o.Wire != params.DType && o.Wire != tensor.BF16 {
		return fmt.Errorf("element type in transit: got %v, want bf16 or the gradients' %v", o.Wire, params.DType)
	}
	if o.CapBytes == 0 {
		o.CapBytes = DefaultCapBytes
	}
	if o.FirstBytes == 0 {
		o.FirstBytes = DefaultFirstBytes
	}
	if o.Ends == nil {
		o.Ends = ByCap(params, o.FirstBytes, o.CapBytes)
	}
	if err := checkEnds(params, o.Ends); err != nil {
		return err
	}
	s.bucket = buckets(params, o.Ends)
	return nil
}

func (s *Sync) allocate() (err error) {
	params := s.state.Params
	flat := func(bytes int64) (b device.Buffer) {
		if err != nil {
			return nil
		}
		if b, err = s.state.NewFlat(bytes); err == nil {
			s.closer = append(s.closer, b.Free)
		}
		return b
	}
	if s.opts.Wire != params.DType {
		s.wire = flat(params.TrainBytes / params.DType.Size() * s.opts.Wire.Size())
	}
	if s.opts.AverageStates {
		s.statesWire = flat(params.MovingBytes)
		s.weight = flat(params.DType.Size())
	}
	if err != nil {
		return err
	}
	if err := s.allocateHost(); err != nil {
		return err
	}
	s.closer = append(s.closer, func() error { return s.host.Free() })
	s.backwardEnd, err = s.event()
	return err
}

// allocateHost allocates the host memory that depends on the number of ranks. After an error, s has its old memory.
func (s *Sync) allocateHost() error {
	before := s.size
	s.size = s.group.Size()
	host, err := s.dev.AllocHost(s.weightAt() + 8)
	if err != nil {
		s.size = before
		return err
	}
	s.host = host
	return nil
}

// event creates an event that Close frees.
func (s *Sync) event() (device.Event, error) {
	e, err := s.dev.NewEvent()
	if err == nil {
		s.closer = append(s.closer, e.Close)
	}
	return e, err
}

// reduce adds the all-reduce of a bucket.
func (s *Sync) reduce(name string, b Bucket) error {
	params := s.state.Params
	r := &reduction{after: b.Offset + b.Bytes}
	n := int(b.Bytes / params.DType.Size())
	spec := device.Spec(params.DType, n)
	sum := plan.At(s.into, b.Offset, spec)
	if s.into != s.state.Grads {
		r.before = append(r.before, s.ops.Launch(name+" sum", device.Binary{Func: device.Add},
			[]plan.Operand{sum, plan.At(s.state.Grads, b.Offset, spec)}, sum))
	}
	if s.wire != nil {
		narrow := device.Spec(s.opts.Wire, n)
		size := narrow.DType.Size()
		there := plan.At(s.wire, b.Offset/params.DType.Size()*size, narrow)
		r.before = append(r.before, s.ops.Launch(name+" narrowed", device.Reorder{To: narrow.DType},
			[]plan.Operand{sum}, there))
		r.behind = append(r.behind, s.ops.Launch(name+" widened", device.Reorder{To: spec.DType}, []plan.Operand{there},
			sum))
		sum = there
	}
	return s.add(r, collective.AllReduce{Name: name, Buffer: sum.At, DType: s.opts.Wire})
}

// averageStates adds the all-reduce of running statistics. Before the backward pass, each rank multiplies its
// statistics by its weight.
func (s *Sync) averageStates() error {
	params := s.state.Params
	spec := device.Spec(params.DType, int(params.MovingBytes/params.DType.Size()))
	factor := device.Spec(params.DType, 1)
	own, there := plan.At(s.state.States, 0, spec), plan.At(s.statesWire, 0, spec)
	scale := s.ops.Launch("statistics weighted", device.Scale{}, []plan.Operand{own, plan.At(s.weight, 0, factor)},
		there)
	back := s.ops.Launch("statistics averaged", device.Reorder{To: spec.DType}, []plan.Operand{there}, own)
	return s.add(&reduction{before: []device.Step{scale}, behind: []device.Step{back}},
		collective.AllReduce{Name: "running statistics", Buffer: there.At, DType: params.DType})
}

// add creates the events of a reduction and appends it.
func (s *Sync) add(r *reduction, op collective.AllReduce) (err error) {
	if r.ready, err = s.event(); err != nil {
		return err
	}
	if r.reduced, err = s.event(); err != nil {
		return err
	}
	r.before = append(r.before, device.Step{Record: r.ready})
	r.behind = append([]device.Step{{Wait: r.reduced}}, r.behind...)
	op.After, op.Done = timed(r.ready, r.reduced, &r.span)
	r.op, r.name, r.bytes = op, op.Name, op.Buffer.Bytes
	if err := r.op.Check(s.group.Size()); err != nil {
		return err
	}
	s.runs, s.reductions = append(s.runs, r), append(s.reductions, Reduction{})
	return nil
}

// programs compiles the programs that run outside the passes.
func (s *Sync) programs() (err error) {
	var tail, finish []device.Step
	for _, r := range s.runs {
		tail = append(tail, r.before...)
		finish = append(finish, r.behind...)
	}
	for _, p := range []struct {
		to    *device.Program
		steps []device.Step
	}{{&s.tail, tail}, {&s.finish, finish}} {
		if len(p.steps) == 0 {
			continue
		}
		if *p.to, err = s.dev.NewProgram(p.steps); err != nil {
			return fmt.Errorf("gradient sum: %w", err)
		}
		s.closer = append(s.closer, (*p.to).Close)
	}
	return nil
}

// Watch calls f after every operation between ranks has ended, on the goroutine that trains; nil stops the calls.
func (s *Sync) Watch(f func(gradients bool, name string, begun, ended time.Time, bytes int64)) {
	s.watcher = f
}

// Bytes returns the device memory that the Sync has allocated.
func (s *Sync) Bytes() int64 {
	n := s.ops.Bytes()
	for _, b := range []device.Buffer{s.wire, s.statesWire, s.weight} {
		if b != nil {
			n += b.Bytes()
		}
	}
	return n
}

// Buckets returns the ranges of the gradient buffer, in the order of their all-reduces.
func (s *Sync) Buckets() []Bucket { return s.bucket }

// fail aborts both communicators and returns the cause of a failed step. If a communicator had already failed, fail
// prefers the error nearest to the cause. Ranks forward failures, so the error with the fewest hops names the rank that
// failed.
func (s *Sync) fail(err error) error {
	for _, c := range s.communicators() {
		if first := c.Err(); first != nil && (hops(err) > hops(first) || hops(err) == 0 && errors.Is(err, first)) {
			err = first
		}
	}
	for _, c := range s.communicators() {
		c.Abort(err)
	}
	return err
}

func (s *Sync) communicators() []collective.Communicator {
	if s.group.Stats == nil || s.group.Stats == s.group.Grads {
		return []collective.Communicator{s.group.Grads}
	}
	return []collective.Communicator{s.group.Grads, s.group.Stats}
}

// hops returns the number of ranks that forwarded a failure; 0 for a failure of this rank.
func hops(err error) (n int) {
	for peer := (*collective.PeerError)(nil); errors.As(err, &peer); n++ {
		err = peer.Cause
	}
	return n
}

// letGo limits the time for which Close waits for communicators to stop using an operation. It is much longer than a
// pause of a thread on a loaded machine.
const letGo = 2 * time.Second

// Close frees events, programs and memory. The caller first closes the plans or binds them without this Sync.
func (s *Sync) Close() error {
	// A thread may still use an operation for a moment after its last event is complete. The timeout covers operations
	// that cannot end because they have failed.
	ctx, cancel := context.WithTimeout(context.Background(), letGo)
	defer cancel()
	for _, c := range s.communicators() {
		_ = c.Sync(ctx) // the first failure of the communicator was reported before
	}
	var errs []error
	for i := len(s.closer) - 1; i >= 0; i-- {
		errs = append(errs, s.closer[i]())
	}
	s.closer = nil
	return errors.Join(errs...)
}
