package device

import (
	"errors"
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Errors that callers distinguish; see the package comment.
var (
	ErrUnsupported = errors.New("not supported by this device")
	ErrOutOfMemory = errors.New("out of device memory")
	ErrDevice      = errors.New("device failure")
	// ErrUnavailable: a driver cannot open its device on this machine (no library, no hardware). The text says why and what to do.
	ErrUnavailable = errors.New("device unavailable")
)

// AbsentError is an ErrUnavailable, as a reason, where nothing is wrong: this machine has no such hardware, or was told to hide it.
type AbsentError string

func (e AbsentError) Error() string { return string(e) }

// Is makes it an ErrUnavailable.
func (AbsentError) Is(target error) bool { return target == ErrUnavailable }

// Device computes. See the package comment for who may call what when.
type Device interface {
	Info() Info
	// Compile chooses algorithm and layouts for one op. out are the specs that op.Infer(in) gives.
	// The Layout of an input says where the operand lies now, or Any where the caller does not care: the
	// kernel may answer with another in Kernel.In, and the caller reorders. The Layout of an output binds
	// unless it is Any. Both kinds of layout must come from this device.
	Compile(op Op, in, out []TensorSpec) (Kernel, error)
	// NewProgram binds kernels to memory. Buffers and kernels must outlive the program.
	NewProgram(steps []Step) (Program, error)
	// Alloc returns device memory, aligned to at least 64 bytes, its content undefined.
	Alloc(bytes int64) (Buffer, error)
	// AllocHost returns page-locked host memory: asynchronous copies take no other.
	AllocHost(bytes int64) (Buffer, error)
	NewStream() (Stream, error)
	NewEvent() (Event, error)
	// Memory is what Alloc has given out and not got back, and the most it ever was, in bytes.
	Memory() (allocated, peak int64)
	Close() error
}

// Info describes a device.
type Info struct {
	Name        string // "cpu:0", "cuda:1", "reference", "null"
	Kind        string // "cpu", "cuda", "reference", "null"
	Model       string // as the maker calls it
	ISA         string // instruction set in use ("avx512_bf16") or compute capability ("sm_90")
	Threads     int    // worker threads of a CPU device, 0 elsewhere
	MemoryBytes int64  // total memory
	FreeBytes   int64  // of it, when the device was opened; 0 where that means nothing
	UUID        string // what tells it from all others of its kind on any machine; "" where there is one for each process
	BusID       string // where it sits in its machine, "00000000:65:00.0"; "" elsewhere than on a bus
	FastBF16    bool   // bf16 matrix products in hardware
	Behind      bool   // streams run behind the caller, so its clock does not tell their time; they are MarkingStreams
	Modelled    bool   // computes nothing: only its times mean something, every result is zero
}

// Driver opens devices of one kind. The program holds the list of drivers.
type Driver interface {
	Kind() string
	// Open returns the index-th device. It answers ErrUnavailable where this machine has none.
	Open(index int, opts Options) (Device, error)
}

// Counter is a Driver whose machine may have several devices, or other numbers of them for each process.
type Counter interface {
	Driver
	// Count is how many devices this process sees. It opens none; ErrUnavailable says why there is none.
	Count() (int, error)
}

// Describer is a Driver that knows what its devices are without opening them, where that takes memory and time that others may need.
type Describer interface {
	Driver
	// Describe is the Info of the index-th device, without UUID, BusID and FreeBytes, or the error that Open would return, as far as that is known.
	Describe(index int) (Info, error)
}

// Options for opening a device.
type Options struct {
	Threads int // CPU worker threads; 0 = one for each core that this process may use
}

// Kernel is an op compiled for fixed operand specs.
type Kernel interface {
	// In and Out are the specs, with layouts, that Region operands must have. Opaque outputs have their size.
	In() []TensorSpec
	Out() []TensorSpec
	// Workspace is the bytes of scratch memory that a launch needs.
	Workspace() int64
	// InPlace lists (output, input) pairs that may share memory when nobody else reads the input later.
	// Pairs that op.Aliases demands are not repeated here.
	InPlace() []Alias
	Close() error
}

// Alias pairs an output with an input, by position.
type Alias struct{ Out, In int }

// Step is one entry of a program: exactly one of the pointers is set.
type Step struct {
	Launch *Launch
	Record Event // is complete when all before it is
	Wait   Event // all after it starts when the event is complete
}

// Launch is a kernel with its memory. len(In) and len(Out) are those of the kernel; Workspace may be the zero Region if
// the kernel needs none.
type Launch struct {
	Name      string // for traces: "layer1.0.conv1"
	Kernel    Kernel
	In, Out   []Region
	Workspace Region
}

// Program is a list of launches that runs in one call.
type Program interface{ Close() error }

// DescribedProgram is a Program that knows what it was made of, for profilers.
type DescribedProgram interface {
	Program
	// Describe is its steps, in order: those that Stream.RunTimed measures.
	Describe() []StepInfo
}

// StepInfo describes one step of a program.
type StepInfo struct {
	Name    string // of the launch
	Op      Op     // nil for steps of events
	In, Out []TensorSpec
	Waits   bool // for an event
}

// Stream runs work in order. A stream may run ahead of the caller (GPU) or be done when the call returns (CPU).
type Stream interface {
	Run(p Program) error
	// RunTimed runs p like Run, synchronises, and adds to elapsed[i] the time that step i took. len(elapsed) = number of steps.
	RunTimed(p Program, elapsed []time.Duration) error
	// Copy moves src.Bytes bytes; host regions must come from AllocHost.
	Copy(dst, src Region) error
	Record(e Event) error
	Wait(e Event) error
	// Sync returns when all that was enqueued is complete.
	Sync() error
	Close() error
}

// Event marks a point in a stream, or a moment in work on the host that streams wait for. It is pending until a
// recording is reached or Complete is called; then it is complete until a run that will record it begins, or Reset. If the
// run fails first, it is over, but failed: Done is true and waiting for it is an error. All methods but Close may be called
// from any goroutine at any time.
type Event interface {
	// Done reports, without waiting, whether the event is no longer pending.
	Done() bool
	// WaitHost blocks the calling OS thread until the event is no longer pending or the time is over. The error is
	// os.ErrDeadlineExceeded if it was over first, ErrDevice for what a failed run was to record.
	WaitHost(limit time.Duration) error
	// Reset takes completion back: from now on Done is false, and streams and hosts that come to wait do wait. Who waits
	// for an event that a run records, and may come before that run has begun, needs it before each step. Of a pending
	// event it changes nothing.
	Reset() error
	// Complete completes the event from the host: steps that wait for it go on, and so does WaitHost.
	Complete() error
	Close() error
}

// ClockedEvent is an Event of a device that models time (package null): completion carries a time on the device's clock,
// and a stream that waits for the event is at least as late from then on.
type ClockedEvent interface {
	Event
	// CompletedAt is the time of the last completion, from 0 when the device was opened.
	CompletedAt() time.Duration
	// CompleteAt is Complete at a modelled time; Complete alone stands for the time 0 and so delays nobody.
	CompleteAt(at time.Duration) error
}

// WaitingStream is a Stream that knows how long it has stood still.
type WaitingStream interface {
	Stream
	// Waited is how long programs have stood at steps that wait for events, since the stream was made; known is false where the device cannot tell.
	Waited() (waited time.Duration, known bool)
}

// Noting is a device that tells what it does otherwise than it should, slower for instance, and why: for the log. "" where there is nothing to say.
type Noting interface{ Notes() string }

// MaxMarks is how many marks a MarkingStream has.
const MaxMarks = 1024

// MarkingStream is a Stream that runs behind the caller: it tells afterwards how long it took between moments in it.
type MarkingStream interface {
	Stream
	// Mark names a moment, from 0 to MaxMarks-1: when all that was enqueued before is complete. One that is set again is where it was set last.
	Mark(mark int) error
	// Between is the time from one mark to another. Both have been passed, as after Sync.
	Between(from, to int) (time.Duration, error)
}

// Slowable is a device that can be made slower than it is, for experiments with unequal workers on equal machines: after each
// launch it idles until the launch has taken a factor of its time. That is a simulation, and Info().Model says so. Either
// method may be called from any goroutine at any time.
type Slowable interface {
	// SetSlowdown is for what runs from now on; 1 is as fast as the device is. ErrUnsupported: this one cannot.
	SetSlowdown(factor float64) error
	Slowdown() Slowdown
}

// Slowdown is what a slowed device did. Factor is that of now; Worked is how long launches took while it was above 1, Idle what
// was added to them.
type Slowdown struct {
	Factor       float64
	Worked, Idle time.Duration
}

// Buffer is a piece of memory.
type Buffer interface {
	Bytes() int64
	// Host is the memory as the CPU sees it, nil where it cannot.
	Host() []byte
	// Free gives the memory back; a second Free is an error.
	Free() error
}

// Region is bytes [Offset, Offset+Bytes) of a buffer.
type Region struct {
	Buffer Buffer
	Offset int64
	Bytes  int64
}

// Whole is the region that covers b.
func Whole(b Buffer) Region { return Region{Buffer: b, Bytes: b.Bytes()} }

// Host is the region as the CPU sees it, nil where it cannot.
func (r Region) Host() []byte {
	h := r.Buffer.Host()
	if h == nil {
		return nil
	}
	return h[r.Offset : r.Offset+r.Bytes : r.Offset+r.Bytes]
}

// Check reports whether r lies inside its buffer.
func (r Region) Check() error {
	if r.Buffer == nil {
		return errors.New("region without a buffer")
	}
	if r.Offset < 0 || r.Bytes < 0 || r.Offset > r.Buffer.Bytes()-r.Bytes {
		return fmt.Errorf("region [%d, %d) outside its buffer of %d bytes", r.Offset, r.Offset+r.Bytes, r.Buffer.Bytes())
	}
	return nil
}

// Layout is how a tensor lies in memory. Values from FirstPrivate on belong to a device.
type Layout uint32

// The layouts that every device knows.
const (
	Plain        Layout = 0 // row-major
	Any          Layout = 1 // in requests only: the device chooses
	FirstPrivate Layout = 16
)

// LayoutNamer is what devices with private layouts implement, for plans that people read.
type LayoutNamer interface{ LayoutName(Layout) string }

// TensorSpec describes one operand.
type TensorSpec struct {
	Shape  tensor.Shape
	DType  tensor.DType
	Layout Layout
	// Bytes is the size in memory with padding. Devices fill it for private layouts and opaque tensors;
	// 0 means the plain size.
	Bytes int64
}

// Spec is the plain spec of a shape and type.
func Spec(dt tensor.DType, shape ...int) TensorSpec { return TensorSpec{Shape: shape, DType: dt} }

// Size is the bytes in memory, padding included.
func (s TensorSpec) Size() int64 {
	if s.Bytes > 0 {
		return s.Bytes
	}
	if s.DType == tensor.Opaque {
		return 0
	}
	return s.Shape.Elements() * s.DType.Size()
}

// With is the spec in another layout, of a size to be told by the device.
func (s TensorSpec) With(l Layout) TensorSpec {
	s.Layout, s.Bytes = l, 0
	return s
}

// Same reports whether two specs describe the same bytes.
func (s TensorSpec) Same(o TensorSpec) bool {
	return s.DType == o.DType && s.Layout == o.Layout && s.Size() == o.Size() && s.Shape.Equal(o.Shape)
}

func (s TensorSpec) String() string {
	if s.Layout == Plain {
		return s.DType.String() + s.Shape.String()
	}
	return fmt.Sprintf("%v%v layout %d", s.DType, s.Shape, s.Layout)
}
