package collective

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Op is one operation. All types are values; what they point to (events, buffers, counts) must not change until the
// operation is complete.
type Op interface {
	// Kind is "all_reduce", "broadcast", "all_gather", "reduce_scatter" or "barrier".
	Kind() string
	// Tags are the fields that all operations have.
	Tags() Tags
	// Memory is the buffer, its element type and how it is reduced; zero for a barrier.
	Memory() (buffer device.Region, dtype tensor.DType, reduce Reduce)
	// Parts says how many elements of the buffer belong to each rank; nil where that has no meaning.
	Parts() []int64
	// Check reports what is wrong for a group of size ranks, whatever the others do.
	Check(size int) error
}

// Tags are what all operations have.
type Tags struct {
	Name        string       // for errors and watchdogs: "bucket 3"
	After, Done device.Event // nil: starts at once; tells nobody
}

// Reduce says how values become one.
type Reduce uint8

// The reductions; see the package comment for their order and for NaN.
const (
	Sum Reduce = iota
	Max
	Min
)

func (r Reduce) String() string {
	switch r {
	case Sum:
		return "sum"
	case Max:
		return "max"
	case Min:
		return "min"
	}
	return fmt.Sprintf("reduce(%d)", uint8(r))
}

// AllReduce replaces every element by the reduction over all ranks.
type AllReduce struct {
	Name        string
	Buffer      device.Region // the same number of elements on all ranks; in place
	DType       tensor.DType
	Reduce      Reduce
	After, Done device.Event
}

// Broadcast copies the bytes of the root to all ranks.
type Broadcast struct {
	Name        string
	Buffer      device.Region // the same number of bytes on all ranks
	Root        int           // rank
	After, Done device.Event
}

// AllGather gives every rank the parts of all. The buffer holds one part a rank, in the order of ranks without gaps;
// before, a rank's own part is valid, afterwards all are.
type AllGather struct {
	Name        string
	Buffer      device.Region // sum of Counts elements
	DType       tensor.DType
	Counts      []int64 // elements of each rank's part, the same list on all ranks; 0 is allowed
	After, Done device.Event
}

// ReduceScatter reduces a buffer of one part a rank, in the order of ranks without gaps. Afterwards a rank's own part holds the
// reduction over all ranks; what the other parts hold is undefined.
type ReduceScatter struct {
	Name        string
	Buffer      device.Region // sum of Counts elements
	DType       tensor.DType
	Reduce      Reduce
	Counts      []int64 // elements of each rank's part, the same list on all ranks; 0 is allowed
	After, Done device.Event
}

// Barrier is complete when all ranks have entered it.
type Barrier struct {
	Name        string
	After, Done device.Event
}

func (AllReduce) Kind() string     { return "all_reduce" }
func (Broadcast) Kind() string     { return "broadcast" }
func (AllGather) Kind() string     { return "all_gather" }
func (ReduceScatter) Kind() string { return "reduce_scatter" }
func (Barrier) Kind() string       { return "barrier" }

func (o AllReduce) Tags() Tags     { return Tags{o.Name, o.After, o.Done} }
func (o Broadcast) Tags() Tags     { return Tags{o.Name, o.After, o.Done} }
func (o AllGather) Tags() Tags     { return Tags{o.Name, o.After, o.Done} }
func (o ReduceScatter) Tags() Tags { return Tags{o.Name, o.After, o.Done} }
func (o Barrier) Tags() Tags       { return Tags{o.Name, o.After, o.Done} }

func (o AllReduce) Memory() (device.Region, tensor.DType, Reduce)   { return o.Buffer, o.DType, o.Reduce }
func (o Broadcast) Memory() (device.Region, tensor.DType, Reduce)   { return o.Buffer, tensor.U8, 0 }
func (o AllGather) Memory() (device.Region, tensor.DType, Reduce)   { return o.Buffer, o.DType, 0 }
func (Barrier) Memory() (r device.Region, d tensor.DType, f Reduce) { return r, d, f }
func (o ReduceScatter) Memory() (device.Region, tensor.DType, Reduce) {
	return o.Buffer, o.DType, o.Reduce
}

func (AllReduce) Parts() []int64       { return nil }
func (Broadcast) Parts() []int64       { return nil }
func (o AllGather) Parts() []int64     { return o.Counts }
func (o ReduceScatter) Parts() []int64 { return o.Counts }
func (Barrier) Parts() []int64         { return nil }

func (o AllReduce) Check(int) error {
	if err := checkReduction(o.DType, o.Reduce); err != nil {
		return faulty(o, err)
	}
	if err := o.Buffer.Check(); err != nil {
		return faulty(o, err)
	}
	if size := o.DType.Size(); o.Buffer.Bytes%size != 0 || o.Buffer.Offset%size != 0 {
		return faulty(o, fmt.Errorf("buffer: got %d bytes at offset %d, want multiples of the %d of %v", o.Buffer.Bytes, o.Buffer.Offset, size, o.DType))
	}
	return nil
}

func (o Broadcast) Check(size int) error {
	if err := o.Buffer.Check(); err != nil {
		return faulty(o, err)
	}
	if o.Root < 0 || o.Root >= size {
		return faulty(o, fmt.Errorf("root: got %d, want a rank below %d", o.Root, size))
	}
	return nil
}

func (o AllGather) Check(size int) error {
	if o.DType == tensor.Invalid || o.DType >= tensor.Opaque {
		return faulty(o, fmt.Errorf("element type: got %v", o.DType))
	}
	if err := checkParts(o.Buffer, o.DType, o.Counts, size); err != nil {
		return faulty(o, err)
	}
	return nil
}

func (o ReduceScatter) Check(size int) error {
	if err := checkReduction(o.DType, o.Reduce); err != nil {
		return faulty(o, err)
	}
	if err := checkParts(o.Buffer, o.DType, o.Counts, size); err != nil {
		return faulty(o, err)
	}
	return nil
}

func (Barrier) Check(int) error { return nil }

func checkReduction(dt tensor.DType, r Reduce) error {
	switch dt {
	case tensor.F32, tensor.F64, tensor.BF16, tensor.I32, tensor.I64, tensor.U8:
	default:
		return fmt.Errorf("element type: got %v, want f32, f64, bf16, i32, i64 or u8", dt)
	}
	if r > Min {
		return fmt.Errorf("reduction: got %v, want sum, max or min", r)
	}
	return nil
}

func checkParts(buffer device.Region, dt tensor.DType, counts []int64, size int) error {
	if err := buffer.Check(); err != nil {
		return err
	}
	if len(counts) != size {
		return fmt.Errorf("counts: got %d, want one for each of %d ranks", len(counts), size)
	}
	left := buffer.Bytes / dt.Size()
	for rank, n := range counts {
		if n < 0 {
			return fmt.Errorf("counts: rank %d: got %d, want at least 0", rank, n)
		}
		if left -= n; left < 0 {
			break
		}
	}
	if buffer.Offset%dt.Size() != 0 {
		return fmt.Errorf("buffer: got offset %d, want a multiple of the %d of %v", buffer.Offset, dt.Size(), dt)
	}
	if left != 0 || buffer.Bytes%dt.Size() != 0 {
		return fmt.Errorf("buffer: got %d bytes, want the sum of the counts %v times the %d of %v", buffer.Bytes, counts, dt.Size(), dt)
	}
	return nil
}

func faulty(o Op, err error) error { return fmt.Errorf("%s: %w", Describe(o), err) }

// Describe is an operation in words: all_reduce "bucket 3".
func Describe(o Op) string {
	if o == nil {
		return "no operation"
	}
	if name := o.Tags().Name; name != "" {
		return fmt.Sprintf("%s %q", o.Kind(), name)
	}
	return o.Kind()
}

// Signature is what all ranks must agree in, as text: "all_reduce f32 sum of 1024 bytes".
func Signature(o Op) string {
	buffer, dt, reduce := o.Memory()
	switch op := o.(type) {
	case Barrier:
		return o.Kind()
	case Broadcast:
		return fmt.Sprintf("%s of %d bytes from rank %d", o.Kind(), buffer.Bytes, op.Root)
	case AllGather:
		return fmt.Sprintf("%s %v of %v elements", o.Kind(), dt, op.Counts)
	case ReduceScatter:
		return fmt.Sprintf("%s %v %v of %v elements", o.Kind(), dt, reduce, op.Counts)
	}
	return fmt.Sprintf("%s %v %v of %d bytes", o.Kind(), dt, reduce, buffer.Bytes)
}

// Agree says whether two ranks' operations are the same, as Signature tells it. Names, memory and events are each rank's own.
func Agree(a, b Op) bool {
	am, at, ar := a.Memory()
	bm, bt, br := b.Memory()
	if a.Kind() != b.Kind() || at != bt || ar != br || am.Bytes != bm.Bytes || !slices.Equal(a.Parts(), b.Parts()) {
		return false
	}
	x, rooted := a.(Broadcast)
	return !rooted || x.Root == b.(Broadcast).Root
}

// errNoOp is what Enqueue answers to nil.
var errNoOp = errors.New("got no operation")

// Check is Op.Check, also for a nil op.
func Check(o Op, size int) error {
	if o == nil {
		return errNoOp
	}
	return o.Check(size)
}
