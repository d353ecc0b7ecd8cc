package reference

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
)

func init() {
	addChecked(embedding[float32], embedding[float64])
	addChecked(embeddingDiff[float32], embeddingDiff[float64])
}

// loadIDs reads the row numbers in tokens or segments. A number outside of the table is an error.
func loadIDs(op device.Op, name string, o operand, rows int) ([]int32, error) {
	ids := loadI32(o)
	for i, id := range ids {
		if id < 0 || int(id) >= rows {
			return nil, fmt.Errorf("%s: %s: element %d: got %d, want 0 to %d", op.Kind(), name, i, id, rows-1)
		}
	}
	return ids, nil
}

// embedding computes dst (N, T, C) as the sum of one row of each table.
func embedding[T real](op device.Embedding, in, out []operand) error {
	weight, shape := load[T](in[1]), out[0].shape()
	positions, channels := shape[1], shape[2]
	tokens, err := loadIDs(op, "tokens", in[0], in[1].shape()[0])
	if err != nil {
		return err
	}
	dst := make([]T, shape.Elements())
	add := func(row, from int, table []T) {
		for c := range channels {
			dst[row*channels+c] += table[from*channels+c]
		}
	}
	for row, id := range tokens {
		add(row, int(id), weight)
	}
	if len(in) > 2 {
		table := load[T](in[2])
		for row := range tokens {
			add(row, row%positions, table)
		}
	}
	if len(in) > 3 {
		segments, err := loadIDs(op, "segments", in[3], in[4].shape()[0])
		if err != nil {
			return err
		}
		table := load[T](in[4])
		for row, id := range segments {
			add(row, int(id), table)
		}
	}
	store(out[0], dst)
	return nil
}

// embeddingDiff adds each row of diff_dst (N, T, C) to the row of the table that the forward op read for it.
func embeddingDiff[T real](op device.EmbeddingDiff, in, out []operand) error {
	diff, shape := load[T](in[0]), in[0].shape()
	positions, channels := shape[1], shape[2]
	table := make([]T, op.Rows*channels)
	if op.Accumulate {
		table = load[T](in[len(in)-1])
	}
	var ids []int32
	if !op.Positions {
		var err error
		if ids, err = loadIDs(op, "ids", in[1], op.Rows); err != nil {
			return err
		}
	}
	sums := make([]T, op.Rows*channels) // sums of the rows; they are added to the table at the end
	for row := range shape[0] * positions {
		to := row % positions
		if ids != nil {
			to = int(ids[row])
		}
		for c := range channels {
			sums[to*channels+c] += diff[row*channels+c]
		}
	}
	for i, s := range sums {
		table[i] += s
	}
	store(out[0], table)
	return nil
}
