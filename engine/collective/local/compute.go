package local

import (
	"fmt"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// compute performs the operation that all ranks have entered.
func (g *group) compute() error {
	op := g.members[0].op
	buffer, dt, reduce := op.Memory()
	if buffer.Bytes == 0 {
		return nil
	}
	hosts := 0
	for i, m := range g.members {
		r, _, _ := m.op.Memory()
		if g.hosts[i] = r.Host(); g.hosts[i] != nil {
			hosts++
		}
	}
	switch {
	case hosts == 0:
		return nil // modelled memory has no content; the operation only takes time
	case hosts < len(g.members):
		return fmt.Errorf("%s: the buffers of %d of %d ranks have no host memory, want all or none",
			collective.Describe(op), len(g.members)-hosts, len(g.members))
	}
	switch op := op.(type) {
	case collective.AllReduce:
		sum := g.reduced(dt, reduce)
		for _, h := range g.hosts {
			copy(h, sum)
		}
	case collective.Broadcast:
		for _, h := range g.hosts {
			copy(h, g.hosts[op.Root])
		}
	case collective.AllGather:
		eachPart(op.Counts, dt, func(rank int, from, to int64) {
			for _, h := range g.hosts {
				copy(h[from:to], g.hosts[rank][from:to])
			}
		})
	case collective.ReduceScatter:
		sum := g.reduced(dt, reduce)
		eachPart(op.Counts, dt, func(rank int, from, to int64) { copy(g.hosts[rank][from:to], sum[from:to]) })
	}
	return nil
}

// eachPart calls the function do for each rank. The part of the rank consists of the bytes [from, to).
func eachPart(counts []int64, dt tensor.DType, do func(rank int, from, to int64)) {
	var from int64
	for rank, n := range counts {
		to := from + n*dt.Size()
		do(rank, from, to)
		from = to
	}
}

// reduced returns the reduction over all ranks, which is valid until the next call.
func (g *group) reduced(dt tensor.DType, f collective.Reduce) []byte {
	n := len(g.hosts[0])
	if len(g.scratch) < n {
		g.scratch = make([]byte, n)
	}
	dst := g.scratch[:n]
	switch dt {
	case tensor.F32:
		reduce[float32](f, dst, g.hosts)
	case tensor.F64:
		reduce[float64](f, dst, g.hosts)
	case tensor.I32:
		reduce[int32](f, dst, g.hosts)
	case tensor.I64:
		reduce[int64](f, dst, g.hosts)
	case tensor.U8:
		reduce[uint8](f, dst, g.hosts)
	case tensor.BF16:
		reduceBF16(f, dst, g.hosts)
	}
	return dst
}

type number interface {
	~float32 | ~float64 | ~int32 | ~int64 | ~uint8
}

// view returns host memory as a slice of numbers.
func view[T any](b []byte) []T {
	var v T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(v)))
}

// reduce combines the values in the order of ranks.
func reduce[T number](f collective.Reduce, dst []byte, src [][]byte) {
	copy(dst, src[0])
	to := view[T](dst)
	for _, b := range src[1:] {
		from := view[T](b)
		for i, v := range from {
			to[i] = combine(f, to[i], v)
		}
	}
}

func reduceBF16(f collective.Reduce, dst []byte, src [][]byte) {
	to := view[uint16](dst)
	for i := range to {
		acc := tensor.F32FromBF16(view[uint16](src[0])[i])
		for _, b := range src[1:] {
			acc = combine(f, acc, tensor.F32FromBF16(view[uint16](b)[i]))
		}
		to[i] = tensor.BF16FromF32(acc)
	}
}

// combine reduces two values. acc is the reduction of the values of all earlier ranks, and v the value of the next
// rank.
func combine[T number](f collective.Reduce, acc, v T) T {
	switch {
	case f == collective.Sum:
		return acc + v
	case v != v || f == collective.Max && v > acc || f == collective.Min && v < acc:
		return v
	}
	return acc
}
