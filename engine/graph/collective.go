package graph

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Ranks describes one rank's position among the ranks that run the same graph, each on its own samples.
type Ranks struct {
	Rank, Count int
	// Samples (Count) i32 is the number of samples of the micro-batch for each rank. The host writes it before each
	// run.
	Samples *Value
	// Total is the number of samples of all ranks together, the same in every run.
	Total int
}

// AllGather copies the values of every rank to all ranks. It is not a device op: the planner turns it into an exchange
// ([plan.Exchange]), a point in the pass where ranks exchange values.
//
//	in   k values of one shape and type
//	out  all (Ranks, k, elements of a value): row r holds the values of rank r
type AllGather struct{ Rank, Ranks int }

// AllReduce sums values over ranks. It adds in the order of the ranks, so that the sums are bit-equal on all ranks.
// Like AllGather, it is not a device op.
//
//	in   k values of one shape and type
//	out  k sums
type AllReduce struct{}

// Kind implements device.Op.
func (AllGather) Kind() string { return "all_gather" }

// Kind implements device.Op.
func (AllReduce) Kind() string { return "all_reduce" }

// Infer implements device.Op.
func (op AllGather) Infer(in []device.TensorSpec) ([]device.TensorSpec, error) {
	if err := alike(op, in); err != nil {
		return nil, err
	}
	if op.Rank < 0 || op.Rank >= op.Ranks {
		return nil, fmt.Errorf("all_gather: rank: got %d, want one of %d", op.Rank, op.Ranks)
	}
	return []device.TensorSpec{device.Spec(in[0].DType, op.Ranks, len(in), int(in[0].Shape.Elements()))}, nil
}

// Infer implements device.Op.
func (op AllReduce) Infer(in []device.TensorSpec) ([]device.TensorSpec, error) {
	if err := alike(op, in); err != nil {
		return nil, err
	}
	out := make([]device.TensorSpec, len(in))
	for i, s := range in {
		out[i] = device.Spec(s.DType, s.Shape...)
	}
	return out, nil
}

// alike returns an error if the list in is empty, or if its values differ in shape or type.
func alike(op device.Op, in []device.TensorSpec) error {
	if len(in) == 0 {
		return fmt.Errorf("%s: got no values, want at least 1", op.Kind())
	}
	for i, s := range in {
		if !s.DType.IsFloat() || s.DType != in[0].DType || !s.Shape.Equal(in[0].Shape) {
			return fmt.Errorf("%s: value %d: got %v, want real numbers like value 0, %v", op.Kind(), i, s, in[0])
		}
	}
	return nil
}

// merged returns the mean and variance of all ranks' samples.
func (r *Ranks) merged(g *Graph, name string, mean, variance *Value) (*Value, *Value) {
	all := g.one(name+" gather", AllGather{Rank: r.Rank, Ranks: r.Count}, mean, variance) // (R, 2, C)
	st := g.Apply(name+" merge", device.BatchNormMerge{}, all, r.Samples)
	return st[0], st[1]
}
