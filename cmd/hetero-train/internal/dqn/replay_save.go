package dqn

import (
	"fmt"
	"hash/crc32"
	"math"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// replayAt is the prefix of the names of the tensors of the replay memory.
const replayAt = "replay."

// checksum returns a checksum of all states and masks.
func (r *replay) checksum() uint32 {
	used := r.used()
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, bytesOf(r.states[:used*r.shape.Floats()]))
	return crc32.Update(sum, table, bytesOf(r.masks[:used*r.shape.Actions()]))
}

// used returns the number of states in the memory.
func (r *replay) used() int { return int(min(r.written, int64(r.rows))) * r.envs }

// part is one array of the replay memory that a checkpoint stores. It does not store states and masks, which Resume
// computes from the actions.
type part struct {
	name  string
	dtype tensor.DType
	width int // number of elements per transition
	data  []byte
}

// bytesOf returns the memory of values. All machines that the engine supports are little endian.
func bytesOf[T any](values []T) []byte {
	var v T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(v)))
}

func (r *replay) parts() []part {
	parts := []part{
		{"actions", tensor.I32, 1, bytesOf(r.actions)},
		{"advice", tensor.I32, 1, bytesOf(r.advice)},
		{"rewards", tensor.F32, 1, bytesOf(r.rewards)},
		{"discounts", tensor.F32, 1, bytesOf(r.discounts)},
	}
	if r.tree != nil {
		parts = append(parts, part{"weights", tensor.F64, 1, bytesOf(r.tree.nodes[r.tree.leaves:][:r.rows*r.envs])})
	}
	return parts
}

// tensors returns the stored parts of the rows that have been written.
func (r *replay) tensors() []checkpoint.Tensor {
	used := r.used()
	var out []checkpoint.Tensor
	for _, p := range r.parts() {
		bytes := used * p.width * int(p.dtype.Size())
		out = append(out, checkpoint.Tensor{Name: replayAt + p.name, DType: p.dtype, Shape: tensor.Shape{used, p.width},
			Data: p.data[:bytes]})
	}
	return out
}

// load restores the memory from a checkpoint. The caller must set written and largest before.
func (r *replay) load(f *checkpoint.File) error {
	used := r.used()
	for _, p := range r.parts() {
		info, ok := f.Info(replayAt + p.name)
		if want := (tensor.Shape{used, p.width}); !ok || info.DType != p.dtype || !info.Shape.Equal(want) {
			return fmt.Errorf("tensor %s: got %v%v, want %v%v", replayAt+p.name, info.Wire, info.Shape, p.dtype, want)
		}
		into := p.data[:used*p.width*int(p.dtype.Size())]
		if err := f.ReadInto(replayAt+p.name, into); err != nil {
			return err
		}
	}
	for i := range used {
		if a, b := int(r.actions[i]), int(r.advice[i]); a < 0 || a >= r.shape.Actions() || b < -1 ||
			b >= r.shape.Actions() {
			return fmt.Errorf(
				"transition %d: got action %d and advice %d, want an action from 0 to %d and an advice from -1 to %d",
				i, a, b, r.shape.Actions()-1, r.shape.Actions()-1)
		}
		if r.tree != nil {
			w := r.tree.weight(i)
			if !(w >= 0 && w <= math.MaxFloat64) {
				return fmt.Errorf("transition %d: got weight %v, want a finite number of at least 0", i, w)
			}
			r.tree.set(i, w)
		}
	}
	return nil
}
