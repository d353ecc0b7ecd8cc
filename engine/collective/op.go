package collective

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Op is one operation. All implementations are plain structs, not pointers. The events, buffers and counts to which an
// Op refers must not be modified until the operation is complete.
type Op interface {
	// Kind is "all_reduce", "broadcast", "all_gather", "reduce_scatter" or "barrier".
	Kind() string
	// Tags returns the fields that are common to all operations.
	Tags() Tags
	// Memory returns the buffer, its element type and its reduction; zero values for a barrier.
	Memory() (buffer device.Region, dtype tensor.DType, reduce Reduce)
	// Parts returns the number of buffer elements of each rank; nil for operations without parts.
	Parts() []int64
	// Check returns an error if the operation is invalid in a group of size ranks. It does not compare the operation
	// with those of other ranks.
	Check(size int) error
}

// Tags are the fields that are common to all operations.
type Tags struct {
	Name        string       // name in errors and watchdog reports, such as "bucket 3"
	After, Done device.Event // nil After: the operation starts immediately; nil Done: its end is not signalled
}

// Reduce is the function that combines the values of all ranks.
type Reduce uint8

// The reductions. The package comment describes their order and their treatment of NaN.
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

// AllReduce replaces every element by the reduction of the values of all ranks.
type AllReduce struct {
	Name        string
	Buffer      device.Region // the same number of elements on all ranks; the result replaces the values
	DType       tensor.DType
	Reduce      Reduce
	After, Done device.Event
}

// Broadcast copies the root's bytes to all ranks.
type Broadcast struct {
	Name        string
	Buffer      device.Region // the same number of bytes on all ranks
	Root        int           // rank whose bytes are copied
	After, Done device.Event
}

// AllGather gives every rank the parts of all ranks. The buffer contains one part per rank, in the order of ranks
// without gaps. A rank must fill its own part before the operation. After the operation, all parts are valid.
type AllGather struct {
	Name        string
	Buffer      device.Region // as many elements as the sum of Counts
	DType       tensor.DType
	Counts      []int64 // elements of each rank's part, the same list on all ranks; 0 is allowed
	After, Done device.Event
}

// ReduceScatter reduces a buffer with one part per rank, in the order of ranks without gaps. After the operation, a
// rank's own part contains the reduction over all ranks. The contents of the other parts are undefined.
type ReduceScatter struct {
	Name        string
	Buffer      device.Region // as many elements as the sum of Counts
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
		return faulty(o, fmt.Errorf("buffer: got %d bytes at offset %d, want multiples of the %d of %v", o.Buffer.Bytes,
			o.Buffer.Offset, size, o.DType))
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
		return fmt.Errorf("buffer: got %d bytes, want the sum of the counts %v times the %d of %v", buffer.Bytes,
			counts, dt.Size(), dt)
	}
	return nil
}

func faulty(o Op, err error) error { return fmt.Errorf("%s: %w", Describe(o), err) }

// Describe returns a short text for an operation: all_reduce "bucket 3".
func Describe(o Op) string {
	if o == nil {
		return "no operation"
	}
	if name := o.Tags().Name; name != "" {
		return fmt.Sprintf("%s %q", o.Kind(), name)
	}
	return o.Kind()
}

// Signature returns as text the properties that must be equal on all ranks: "all_reduce f32 sum of 1024 bytes".
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

// Agree reports whether two ranks' operations have the same Signature. Names, memory and events may differ.
func Agree(a, b Op) bool {
	am, at, ar := a.Memory()
	bm, bt, br := b.Memory()
	if a.Kind() != b.Kind() || at != bt || ar != br || am.Bytes != bm.Bytes || !slices.Equal(a.Parts(), b.Parts()) {
		return false
	}
	x, rooted := a.(Broadcast)
	return !rooted || x.Root == b.(Broadcast).Root
}

// errNoOp is the error that Enqueue returns if the operation is nil.
var errNoOp = errors.New("got no operation")

// Check calls o.Check, and returns an error if o is nil.
func Check(o Op, size int) error {
	if o == nil {
		return errNoOp
	}
	return o.Check(size)
}
