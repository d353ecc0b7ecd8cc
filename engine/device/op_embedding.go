package device

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Embedding reads one row of a table for each token. If tables of positions and segments are given, it adds the rows of
// the token's position and segment. The sum is in f32 (f64 if To is f64), in the order token, position, segment.
//
// Legend: N samples, T positions, C channels; tables of V ids, P positions and S kinds of segments.
//
//	in   tokens (N, T), i32; weight (V, C), f32; [positions (P, C), f32, P >= T; [segments (N, T), i32; kinds (S, C), f32]]
//	out  dst (N, T, C), of type To
//
// Position t uses row t of positions. If an id is outside its table, the run fails; the kernel reads no memory outside
// the table.
type Embedding struct {
	To tensor.DType // type of dst; the tables are f64 if To is f64, else f32
}

// EmbeddingDiff computes the gradient of one table of an Embedding. Row r is the sum in f32 of the rows of diff_dst
// whose id is r. The order of the sum depends only on the ids. If Positions is set, there are no ids, and row t is the
// sum of the rows at position t over the samples.
//
//	in   diff_dst (N, T, C); [ids (N, T), i32, unless Positions]; [sum (Rows, C), f32, if Accumulate]
//	out  diff_table (Rows, C), f32; if Accumulate, it is added to sum and has sum's memory
type EmbeddingDiff struct {
	Rows       int
	Positions  bool
	Accumulate bool
}

// Accumulator is an op that can add its first output to an existing value.
type Accumulator interface {
	Op
	// Accumulating returns the op that takes the existing value as an additional last operand and adds to it in place.
	Accumulating() Op
}

// Kind implements Op.
func (Embedding) Kind() string { return "embedding" }

// Kind implements Op.
func (EmbeddingDiff) Kind() string { return "embedding_diff" }

// Infer implements Op.
func (op Embedding) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 2, 3, 5); err != nil {
		return nil, err
	}
	if !op.To.IsFloat() {
		return nil, fmt.Errorf("embedding: result type: got %v, want a float type", op.To)
	}
	tokens, weight := in[0], in[1]
	table := weightType(op.To)
	err := firstError(wantDims(op, "tokens", tokens, 2), wantType(op, "tokens", tokens, tensor.I32),
		wantDims(op, "weight", weight, 2), wantType(op, "weight", weight, table))
	if err != nil {
		return nil, err
	}
	n, t, c := tokens.Shape[0], tokens.Shape[1], weight.Shape[1]
	if len(in) > 2 {
		p := in[2]
		if err := firstError(wantDims(op, "positions", p, 2), wantType(op, "positions", p, table)); err != nil {
			return nil, err
		}
		if err := wantShape(op, "positions", p, p.Shape[0], c); err != nil {
			return nil, err
		}
		if p.Shape[0] < t {
			return nil,
				fmt.Errorf("embedding: positions: got a table of %d positions, want at least the %d of the tokens",
					p.Shape[0], t)
		}
	}
	if len(in) > 3 {
		s, kinds := in[3], in[4]
		err := firstError(wantShape(op, "segments", s, n, t), wantType(op, "segments", s, tensor.I32),
			wantDims(op, "kinds", kinds, 2), wantType(op, "kinds", kinds, table))
		if err != nil {
			return nil, err
		}
		if err := wantShape(op, "kinds", kinds, kinds.Shape[0], c); err != nil {
			return nil, err
		}
	}
	return []TensorSpec{Spec(op.To, n, t, c)}, nil
}

// Infer implements Op.
func (op EmbeddingDiff) Infer(in []TensorSpec) ([]TensorSpec, error) {
	want := 1
	if !op.Positions {
		want++
	}
	if op.Accumulate {
		want++
	}
	if err := operands(op, in, want); err != nil {
		return nil, err
	}
	diff := in[0]
	if err := wantDims(op, "diff_dst", diff, 3); err != nil {
		return nil, err
	}
	n, t, c := diff.Shape[0], diff.Shape[1], diff.Shape[2]
	if op.Rows < 1 || op.Positions && op.Rows < t {
		return nil, fmt.Errorf("embedding_diff: got %d rows for %d positions", op.Rows, t)
	}
	if !op.Positions {
		if err := firstError(wantShape(op, "ids", in[1], n, t), wantType(op, "ids", in[1], tensor.I32)); err != nil {
			return nil, err
		}
	}
	out := Spec(weightType(diff.DType), op.Rows, c)
	if op.Accumulate {
		sum := in[len(in)-1]
		if err := firstError(wantShape(op, "sum", sum, op.Rows, c), wantType(op, "sum", sum, out.DType)); err != nil {
			return nil, err
		}
	}
	return []TensorSpec{out}, nil
}

// Aliases implements Aliaser.
func (op EmbeddingDiff) Aliases() []Alias {
	switch {
	case !op.Accumulate:
		return nil
	case op.Positions:
		return []Alias{{Out: 0, In: 1}}
	}
	return []Alias{{Out: 0, In: 2}}
}

// Accumulating implements Accumulator.
func (op EmbeddingDiff) Accumulating() Op {
	op.Accumulate = true
	return op
}
