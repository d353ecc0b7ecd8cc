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
	// ErrUnavailable means that a driver cannot open its device on this machine, because the library or the hardware is
	// missing. The text gives the cause and the remedy.
	ErrUnavailable = errors.New("device unavailable")
)

// AbsentError is an ErrUnavailable that does not indicate a fault: this machine has no such hardware, or the hardware
// is hidden on purpose. The text states the reason.
type AbsentError string

func (e AbsentError) Error() string { return string(e) }

// Is reports that every AbsentError is an ErrUnavailable.
func (AbsentError) Is(target error) bool { return target == ErrUnavailable }

// Device is an open computing device. The package comment states the duties of callers.
type Device interface {
	Info() Info
	// Compile chooses an algorithm and layouts for one op. The parameter in lists the specs of the inputs, and out the
	// specs that op.Infer returns for them. The Layout of an input is its current layout, or Any if the caller has no
	// preference. Kernel.In may return another layout; the caller must then reorder the input. The Layout of an output
	// is the required layout, or Any. All other layouts must be Plain or belong to this device. Compile returns
	// ErrUnsupported if the device has no kernel for the op.
	Compile(op Op, in, out []TensorSpec) (Kernel, error)
	// NewProgram binds kernels to memory. Buffers and kernels must outlive the program.
	NewProgram(steps []Step) (Program, error)
	// Alloc returns device memory, aligned to at least 64 bytes. The content of the memory is undefined.
	Alloc(bytes int64) (Buffer, error)
	// AllocHost returns page-locked host memory, which asynchronous copies require.
	AllocHost(bytes int64) (Buffer, error)
	NewStream() (Stream, error)
	NewEvent() (Event, error)
	// Memory returns the number of bytes that Alloc has currently allocated, and the peak of this number.
	Memory() (allocated, peak int64)
	Close() error
}

// Info describes a device.
type Info struct {
	Name        string // "cpu:0", "cuda:1", "reference", "null"
	Kind        string // "cpu", "cuda", "reference", "null"
	Model       string // the manufacturer's name
	ISA         string // instruction set in use ("avx512_bf16") or compute capability ("sm_90")
	Threads     int    // worker threads of a CPU device, 0 elsewhere
	MemoryBytes int64  // total memory
	FreeBytes   int64  // free part of MemoryBytes when the device was opened; 0 if unknown
	UUID        string // unique identifier of the device across machines; "" if each process has its own device
	BusID       string // address on the bus, "00000000:65:00.0"; "" for devices without a bus
	FastBF16    bool   // the hardware supports bf16 matrix products
	Behind      bool   // streams run asynchronously, so the host's clock cannot measure them; they are MarkingStreams
	Modelled    bool   // the device computes no values: times are modelled, and every result is zero
}

// Driver opens devices of one kind. The program holds the list of drivers.
type Driver interface {
	Kind() string
	// Open returns the index-th device. It returns ErrUnavailable if this machine has no such device.
	Open(index int, opts Options) (Device, error)
}

// Counter is a Driver for a kind of device of which a machine may have several. A process may see only some of them.
type Counter interface {
	Driver
	// Count returns the number of devices that this process sees, without opening one. If there is none, it returns
	// ErrUnavailable with the reason.
	Count() (int, error)
}

// Describer is a Driver that can describe devices without opening them. Opening a device may take memory and time that
// other processes need.
type Describer interface {
	Driver
	// Describe returns the Info of the index-th device, without UUID, BusID and FreeBytes. If Describe can determine
	// that Open would fail, it returns the error of Open.
	Describe(index int) (Info, error)
}

// Options holds the settings for opening a device.
type Options struct {
	Threads int // CPU worker threads; 0: one for each core that this process may use
}

// Kernel is an op compiled for fixed operand specs.
type Kernel interface {
	// In and Out return the specs that the operands must have, with layouts. The specs of opaque outputs contain their
	// size.
	In() []TensorSpec
	Out() []TensorSpec
	// Workspace returns the size of the scratch memory of a launch, in bytes.
	Workspace() int64
	// InPlace returns (output, input) pairs that may share memory if the input has no later readers. It omits the pairs
	// that the op requires (see Aliases).
	InPlace() []Alias
	Close() error
}

// Alias pairs an output with an input, by position.
type Alias struct{ Out, In int }

// Step is one entry of a program: exactly one of the pointers is set.
type Step struct {
	Launch *Launch
	Record Event // event that is complete after all earlier steps
	Wait   Event // event that must be complete before later steps start
}

// Launch is a kernel with its memory. In and Out have as many regions as the kernel has operands. Workspace may be the
// zero Region if the kernel needs none.
type Launch struct {
	Name      string // name in traces: "layer1.0.conv1"
	Kernel    Kernel
	In, Out   []Region
	Workspace Region
}

// Program is a list of launches that runs in one call.
type Program interface{ Close() error }

// DescribedProgram is a Program that can list its steps, for profilers.
type DescribedProgram interface {
	Program
	// Describe returns the steps, in the order in which Stream.RunTimed measures them.
	Describe() []StepInfo
}

// StepInfo describes one step of a program.
type StepInfo struct {
	Name    string // name of the launch
	Op      Op     // op of the launch; nil for a step that records or waits for an event
	In, Out []TensorSpec
	Waits   bool // true if the step waits for an event
}

// Stream runs work in order. A stream may run asynchronously (GPU) or finish before the call returns (CPU).
type Stream interface {
	Run(p Program) error
	// RunTimed runs p like Run, synchronises, and adds the time of step i to elapsed[i]. The length of elapsed must be
	// the number of steps.
	RunTimed(p Program, elapsed []time.Duration) error
	// Copy copies src.Bytes bytes; host regions must come from AllocHost.
	Copy(dst, src Region) error
	Record(e Event) error
	Wait(e Event) error
	// Sync returns when all enqueued work is complete.
	Sync() error
	Close() error
}

// Event marks a point in a stream, or the end of work on the host for which streams wait. An event is pending until a
// stream reaches the step that records it, or until Complete is called. It is then complete until Reset is called, or
// until a run begins that will record it. If such a run fails before the recording, the event has failed: Done returns
// true, and waits return an error. All methods except Close are safe for concurrent use.
type Event interface {
	// Done reports, without waiting, whether the event is no longer pending.
	Done() bool
	// WaitHost blocks the calling OS thread until the event is no longer pending or the time limit has expired. It
	// returns os.ErrDeadlineExceeded when the limit has expired, and ErrDevice if the run that should record the event
	// has failed.
	WaitHost(limit time.Duration) error
	// Reset makes a complete event pending: Done returns false, and later waits of streams and hosts block. Call Reset
	// before each step if a wait may start before the run that records the event. Reset of a pending event has no
	// effect.
	Reset() error
	// Complete completes the event from the host. Waiting steps and calls of WaitHost then continue.
	Complete() error
	Close() error
}

// ClockedEvent is an Event of a device that models time (package null). Its completion has a time on the device's
// clock, and the clock of a stream that waits for the event advances at least to that time.
type ClockedEvent interface {
	Event
	// CompletedAt returns the time of the last completion. Time 0 is the time at which the device was opened.
	CompletedAt() time.Duration
	// CompleteAt is like Complete, but sets the modelled time of completion. Complete uses time 0, which does not delay
	// any stream.
	CompleteAt(at time.Duration) error
}

// WaitingStream is a Stream that measures the time for which it was blocked.
type WaitingStream interface {
	Stream
	// Waited returns the total time for which programs on the stream were blocked at steps that wait for events. known
	// is false if the device cannot measure it.
	Waited() (waited time.Duration, known bool)
}

// Noting is a device that reports unusual behaviour and its cause for the log, for example the use of a slower method.
// Notes returns "" if there is nothing to report.
type Noting interface{ Notes() string }

// MaxMarks is the number of marks of a MarkingStream.
const MaxMarks = 1024

// MarkingStream is an asynchronous Stream that measures the time between points in it.
type MarkingStream interface {
	Stream
	// Mark sets a mark after all work that is enqueued so far. The number of the mark is from 0 to MaxMarks-1. A second
	// call with the same number moves the mark.
	Mark(mark int) error
	// Between returns the time between two marks. The stream must have passed both marks, which is certain after Sync.
	Between(from, to int) (time.Duration, error)
}

// Slowable is a device that can be slowed down, for experiments with unequal workers on equal machines. After each
// launch, the device idles, so that the launch takes a multiple of its own time. Info().Model states that the device is
// slowed down. Both methods are safe for concurrent use.
type Slowable interface {
	// SetSlowdown sets the factor of later launches; 1 is full speed. It returns ErrUnsupported if this device cannot
	// be slowed down.
	SetSlowdown(factor float64) error
	Slowdown() Slowdown
}

// Slowdown describes how a device was slowed down. Factor is the current factor. Worked is the total time of launches
// while the factor was above 1. Idle is the idle time that was added to these launches.
type Slowdown struct {
	Factor       float64
	Worked, Idle time.Duration
}

// Buffer is a contiguous block of memory.
type Buffer interface {
	Bytes() int64
	// Host returns the memory as bytes for the CPU, or nil if the CPU cannot access it.
	Host() []byte
	// Free frees the memory; a second Free is an error.
	Free() error
}

// Region is bytes [Offset, Offset+Bytes) of a buffer.
type Region struct {
	Buffer Buffer
	Offset int64
	Bytes  int64
}

// Whole returns the region that covers b.
func Whole(b Buffer) Region { return Region{Buffer: b, Bytes: b.Bytes()} }

// Host returns the region as bytes for the CPU, or nil if the CPU cannot access it.
func (r Region) Host() []byte {
	h := r.Buffer.Host()
	if h == nil {
		return nil
	}
	return h[r.Offset : r.Offset+r.Bytes : r.Offset+r.Bytes]
}

// Check returns an error unless r is inside its buffer.
func (r Region) Check() error {
	if r.Buffer == nil {
		return errors.New("region without a buffer")
	}
	if r.Offset < 0 || r.Bytes < 0 || r.Offset > r.Buffer.Bytes()-r.Bytes {
		return fmt.Errorf("region [%d, %d) outside its buffer of %d bytes", r.Offset, r.Offset+r.Bytes,
			r.Buffer.Bytes())
	}
	return nil
}

// Layout is the arrangement of a tensor in memory. Values from FirstPrivate on are specific to a device.
type Layout uint32

// Layouts of all devices.
const (
	Plain        Layout = 0 // row-major
	Any          Layout = 1 // only in requests: the device chooses the layout
	FirstPrivate Layout = 16
)

// LayoutNamer is implemented by devices with private layouts, for readable plans.
type LayoutNamer interface{ LayoutName(Layout) string }

// TensorSpec describes one operand.
type TensorSpec struct {
	Shape  tensor.Shape
	DType  tensor.DType
	Layout Layout
	// Bytes is the size in memory including padding. Devices set it for private layouts and opaque tensors; 0 means the
	// size in the plain layout.
	Bytes int64
}

// Spec returns the plain spec of a shape and type.
func Spec(dt tensor.DType, shape ...int) TensorSpec { return TensorSpec{Shape: shape, DType: dt} }

// Size returns the number of bytes in memory, including padding.
func (s TensorSpec) Size() int64 {
	if s.Bytes > 0 {
		return s.Bytes
	}
	if s.DType == tensor.Opaque {
		return 0
	}
	return s.Shape.Elements() * s.DType.Size()
}

// With returns the spec with another layout. It leaves the size unset, because the device determines the size.
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
