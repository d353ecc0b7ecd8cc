// Package signature describes an operation by a fixed number of integers. Ranks exchange signatures to check that they
// run the same operation.
package signature

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Kind is the kind of an operation, as a number.
type Kind int32

// The kinds, with the numbers that the native libraries use.
const (
	AllReduce Kind = iota + 1
	Broadcast
	AllGather
	ReduceScatter
	Barrier
)

// Signature describes one operation.
type Signature struct {
	Number   uint64 // position of the operation in its communicator's sequence, from 1
	Kind     Kind
	DType    tensor.DType
	Reduce   collective.Reduce
	Root     int // rank
	Elements int64
	Parts    uint64 // hash of the counts; 0 if the operation has no counts
}

// Of returns the signature of an operation, with Parts = 0. The native libraries set Parts.
func Of(op collective.Op, number uint64) Signature {
	buffer, dt, reduce := op.Memory()
	s := Signature{Number: number, DType: dt, Reduce: reduce}
	if dt != tensor.Invalid {
		s.Elements = buffer.Bytes / dt.Size()
	}
	switch op := op.(type) {
	case collective.AllReduce:
		s.Kind = AllReduce
	case collective.Broadcast:
		s.Kind, s.Root = Broadcast, op.Root
	case collective.AllGather:
		s.Kind = AllGather
	case collective.ReduceScatter:
		s.Kind = ReduceScatter
	case collective.Barrier:
		s.Kind = Barrier
	}
	return s
}

func (s Signature) String() string {
	switch s.Kind {
	case AllReduce:
		return fmt.Sprintf("all_reduce %v %v of %d elements", s.DType, s.Reduce, s.Elements)
	case Broadcast:
		return fmt.Sprintf("broadcast of %d bytes from rank %d", s.Elements, s.Root)
	case AllGather:
		return fmt.Sprintf("all_gather %v of %d elements, counts #%08x", s.DType, s.Elements, uint32(s.Parts))
	case ReduceScatter:
		return fmt.Sprintf("reduce_scatter %v %v of %d elements, counts #%08x", s.DType, s.Reduce, s.Elements,
			uint32(s.Parts))
	case Barrier:
		return "barrier"
	}
	return fmt.Sprintf("operation of kind %d", s.Kind)
}
