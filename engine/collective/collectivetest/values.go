package collectivetest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

var valueChecks = []check{
	{name: "all_reduce of every type, reduction and length", run: checkAllReduce},
	{name: "all_reduce of special values", run: checkSpecials},
	{name: "all_reduce of part of a buffer", run: checkPart},
	{name: "large buffers", run: checkLarge},
	{name: "broadcast from every root", run: checkBroadcast},
	{name: "all_gather of unequal parts", run: checkAllGather},
	{name: "reduce_scatter of unequal parts", run: checkReduceScatter},
}

var (
	allSizes   = []int{1, 2, 3, 4, 7}
	types      = []tensor.DType{tensor.F32, tensor.BF16, tensor.F64, tensor.I32, tensor.I64, tensor.U8}
	reductions = []collective.Reduce{collective.Sum, collective.Max, collective.Min}
	// lengths are buffer lengths in elements: zero, fewer than the ranks, and close to the sizes of vectors and cache
	// lines. No block size divides the longest lengths.
	lengths = []int{0, 1, 2, 3, 5, 15, 17, 63, 64, 65, 1000, 4099, 20_011}
)

// oracle returns the reduction in the group's order.
func (g Group) oracle(dt tensor.DType, f collective.Reduce, ranks [][]byte) []byte {
	var hosts [][]byte
	for _, host := range g.Hosts {
		var own [][]byte
		for _, rank := range host {
			own = append(own, ranks[rank])
		}
		hosts = append(hosts, oracle(dt, f, own))
	}
	if hosts == nil {
		hosts = ranks
	}
	return oracle(dt, f, hosts)
}

// oracle reduces element by element, in the order of ranks.
func oracle(dt tensor.DType, f collective.Reduce, ranks [][]byte) []byte {
	out := make([]byte, len(ranks[0]))
	for at := 0; at < len(out); at += int(dt.Size()) {
		switch dt {
		case tensor.F32:
			fold(f, ranks, at, func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) },
				func(v float32) { binary.LittleEndian.PutUint32(out[at:], math.Float32bits(v)) })
		case tensor.BF16:
			fold(f, ranks, at, func(b []byte) float32 { return tensor.F32FromBF16(binary.LittleEndian.Uint16(b)) },
				func(v float32) { binary.LittleEndian.PutUint16(out[at:], tensor.BF16FromF32(v)) })
		case tensor.F64:
			fold(f, ranks, at, func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) },
				func(v float64) { binary.LittleEndian.PutUint64(out[at:], math.Float64bits(v)) })
		case tensor.I32:
			fold(f, ranks, at, func(b []byte) int32 { return int32(binary.LittleEndian.Uint32(b)) },
				func(v int32) { binary.LittleEndian.PutUint32(out[at:], uint32(v)) })
		case tensor.I64:
			fold(f, ranks, at, func(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) },
				func(v int64) { binary.LittleEndian.PutUint64(out[at:], uint64(v)) })
		case tensor.U8:
			fold(f, ranks, at, func(b []byte) uint8 { return b[0] }, func(v uint8) { out[at] = v })
		}
	}
	return out
}

func fold[T float32 | float64 | int32 | int64 | uint8](f collective.Reduce, ranks [][]byte, at int, load func([]byte) T,
	store func(T)) {
	acc := load(ranks[0][at:])
	for _, b := range ranks[1:] {
		v := load(b[at:])
		switch f {
		case collective.Sum:
			acc += v
		case collective.Max:
			if v > acc || v != v {
				acc = v
			}
		case collective.Min:
			if v < acc || v != v {
				acc = v
			}
		}
	}
	store(acc)
}

// random returns n random elements. The magnitudes of real numbers vary so widely that another order of addition gives
// another sum.
func random(rng *rand.Rand, dt tensor.DType, n int) []byte {
	b := make([]byte, n*int(dt.Size()))
	for i := range n {
		v := math.Ldexp(rng.NormFloat64(), rng.IntN(16))
		switch dt {
		case tensor.F32:
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(v)))
		case tensor.BF16:
			binary.LittleEndian.PutUint16(b[2*i:], tensor.BF16FromF32(float32(v)))
		case tensor.F64:
			binary.LittleEndian.PutUint64(b[8*i:], math.Float64bits(v))
		default:
			for k := range dt.Size() {
				b[int64(i)*dt.Size()+k] = byte(rng.Uint32())
			}
		}
	}
	return b
}

func randoms(seed uint64, dt tensor.DType, n, size int) [][]byte {
	rng := rand.New(rand.NewPCG(seed, uint64(size)))
	all := make([][]byte, size)
	for rank := range all {
		all[rank] = random(rng, dt, n)
	}
	return all
}

func forSizes(t conformance.T, s suite, f func(conformance.T, *rig)) {
	sizes := s.Sizes
	if sizes == nil {
		sizes = allSizes
	}
	for _, size := range sizes {
		t.Run(fmt.Sprintf("%d ranks", size), func(t conformance.T) { f(t, newRig(t, s, size, 0)) })
	}
}

// reduced returns the result of an all-reduce on each rank.
func (r *rig) reduced(dt tensor.DType, f collective.Reduce, in [][]byte) [][]byte {
	r.t.Helper()
	out := make([][]byte, r.size)
	r.do(func(rank int) collective.Op {
		m := r.memory(rank, in[rank])
		out[rank] = r.host(m)
		return collective.AllReduce{Buffer: m, DType: dt, Reduce: f}
	})
	return out
}

// compareAll runs an all-reduce. Every rank's result must be bit-equal to that of the oracle. All NaNs count as equal.
func (r *rig) compareAll(dt tensor.DType, f collective.Reduce, in [][]byte) {
	r.t.Helper()
	out := r.reduced(dt, f, in)
	want := r.oracle(dt, f, in)
	for rank, got := range out {
		if at := differ(dt, got, want); at >= 0 {
			r.t.Fatalf("%v %v of %d bytes: rank %d: byte %d: got % x, want % x", dt, f, len(want), rank, at,
				got[at:at+int(dt.Size())], want[at:at+int(dt.Size())])
		}
		if !bytes.Equal(got, out[0]) {
			r.t.Fatalf("%v %v of %d bytes: rank %d has other bits than rank 0", dt, f, len(want), rank)
		}
	}
}

// differ returns the first position where two buffers differ, or -1. All NaNs count as equal.
func differ(dt tensor.DType, got, want []byte) int {
	if bytes.Equal(got, want) {
		return -1
	}
	n := int(dt.Size())
	for at := 0; at < len(want); at += n {
		if g, w := got[at:at+n], want[at:at+n]; !bytes.Equal(g, w) && !(isNaN(dt, g) && isNaN(dt, w)) {
			return at
		}
	}
	return -1
}

func isNaN(dt tensor.DType, b []byte) bool {
	return isReal(dt) && math.IsNaN(number(dt, b))
}

func checkAllReduce(t conformance.T, s suite) {
	forSizes(t, s, func(_ conformance.T, r *rig) {
		for _, dt := range types {
			for i, n := range lengths {
				in := r.summands(uint64(i), dt, n)
				for _, f := range reductions {
					r.compareAll(dt, f, in)
				}
			}
			if n := lengths[len(lengths)-1]; r.unordered(dt) {
				r.compareSums(dt, randoms(1, dt, n, r.size))
			}
		}
	})
}

// checkSpecials covers infinities, NaN, denormal numbers, zeros of both signs, and sums that overflow.
func checkSpecials(t conformance.T, s suite) {
	special := []float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat32,
		-math.MaxFloat32,
		math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, 1e-40, 0x1p-126, 1.00390625, 1.01171875, 256}
	forSizes(t, s, func(_ conformance.T, r *rig) {
		for _, dt := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F64} {
			in := make([][]byte, r.size)
			stride := 1
			for rank := range in { // combines every special value with every other one
				for i := range 1031 {
					v := special[(i/stride+rank)%len(special)]
					in[rank] = appendReal(in[rank], dt, v)
				}
				stride = stride*len(special)%1021 + 1
			}
			for _, f := range reductions {
				if f == collective.Sum && r.unordered(dt) {
					r.compareSums(dt, in)
					continue
				}
				r.compareAll(dt, f, in)
			}
		}
	})
}

// checkPart checks that the memory around the region does not change. The region starts at various offsets that are
// multiples of the element size.
func checkPart(t conformance.T, s suite) {
	r := newRig(t, s, 3, 0)
	for _, dt := range types {
		const n = 1003
		in := r.summands(1, dt, n)
		for _, first := range []int{1, 3, 500} {
			last := n - 2
			from, to := first*int(dt.Size()), last*int(dt.Size())
			var slices [][]byte
			for _, b := range in {
				slices = append(slices, b[from:to])
			}
			want := r.oracle(dt, collective.Sum, slices)
			out := make([][]byte, r.size)
			r.do(func(rank int) collective.Op {
				m := r.memory(rank, in[rank])
				out[rank] = r.host(m)
				m.Offset, m.Bytes = int64(from), int64(to-from)
				return collective.AllReduce{Buffer: m, DType: dt}
			})
			for rank, got := range out {
				if !bytes.Equal(got[from:to], want) {
					t.Errorf("%v from element %d: rank %d: wrong sums", dt, first, rank)
				}
				if !bytes.Equal(got[:from], in[rank][:from]) || !bytes.Equal(got[to:], in[rank][to:]) {
					t.Errorf("%v from element %d: rank %d: elements outside the region changed", dt, first, rank)
				}
			}
		}
	}
}

// checkLarge uses buffers larger than any staging memory, with an odd number of elements.
func checkLarge(t conformance.T, s suite) {
	conformance.Long(t)
	for _, size := range []int{2, 3} {
		r := newRig(t, s, size, 0)
		for _, dt := range []tensor.DType{tensor.F32, tensor.BF16} {
			r.compareAll(dt, collective.Sum, r.summands(9, dt, 700_003))
		}
		counts := make([]int64, size)
		counts[0], counts[1] = 2<<20+3, 1<<20+1
		r.gather(tensor.U8, counts, 3)
		counts = []int64{1<<19 + 5, 1 << 17, 3}[:size]
		r.scatter(tensor.F32, collective.Sum, counts, r.summands(4, tensor.F32, int(total(counts))))
	}
}

func checkBroadcast(t conformance.T, s suite) {
	forSizes(t, s, func(t conformance.T, r *rig) {
		for root := range r.size {
			for _, n := range lengths {
				in := randoms(uint64(n), tensor.U8, n, r.size)
				out := make([][]byte, r.size)
				r.do(func(rank int) collective.Op {
					m := r.memory(rank, in[rank])
					out[rank] = r.host(m)
					return collective.Broadcast{Buffer: m, Root: root}
				})
				for rank, got := range out {
					if !bytes.Equal(got, in[root]) {
						t.Fatalf("%d bytes from rank %d: rank %d has others", n, root, rank)
					}
				}
			}
		}
	})
}

// partitions returns counts for size ranks: equal, unequal, with zeros, all zero.
func partitions(size int) [][]int64 {
	rng := rand.New(rand.NewPCG(uint64(size), 5))
	equal, growing, zeros, one, wild := make([]int64, size), make([]int64, size), make([]int64, size),
		make([]int64, size), make([]int64, size)
	for rank := range size {
		equal[rank] = 64
		growing[rank] = int64(rank) * 13
		wild[rank] = int64(rng.IntN(3) * rng.IntN(5000))
	}
	one[size-1] = 333
	return [][]int64{equal, growing, zeros, one, wild}
}

func total(counts []int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// gather runs an all-gather and checks all parts.
func (r *rig) gather(dt tensor.DType, counts []int64, seed uint64) {
	r.t.Helper()
	in := randoms(seed, dt, int(total(counts)), r.size)
	var want []byte
	var from int64
	for rank, n := range counts {
		to := from + n*dt.Size()
		want = append(want, in[rank][from:to]...)
		from = to
	}
	out := make([][]byte, r.size)
	r.do(func(rank int) collective.Op {
		m := r.memory(rank, in[rank])
		out[rank] = r.host(m)
		return collective.AllGather{Buffer: m, DType: dt, Counts: counts}
	})
	for rank, got := range out {
		if !bytes.Equal(got, want) {
			r.t.Fatalf("%v, parts of %v elements: rank %d: wrong values", dt, counts, rank)
		}
	}
}

// scatter runs a reduce-scatter and checks each rank's own part.
func (r *rig) scatter(dt tensor.DType, f collective.Reduce, counts []int64, in [][]byte) {
	r.t.Helper()
	out := make([][]byte, r.size)
	r.do(func(rank int) collective.Op {
		m := r.memory(rank, in[rank])
		out[rank] = r.host(m)
		return collective.ReduceScatter{Buffer: m, DType: dt, Reduce: f, Counts: counts}
	})
	want := r.oracle(dt, f, in)
	var from int64
	for rank, n := range counts {
		to := from + n*dt.Size()
		if !bytes.Equal(out[rank][from:to], want[from:to]) {
			r.t.Fatalf("%v %v, parts of %v elements: rank %d: wrong values in its part", dt, f, counts, rank)
		}
		from = to
	}
}

func checkAllGather(t conformance.T, s suite) {
	forSizes(t, s, func(_ conformance.T, r *rig) {
		for _, dt := range append([]tensor.DType{tensor.F16, tensor.U32}, types...) {
			for i, counts := range partitions(r.size) {
				r.gather(dt, counts, uint64(i))
			}
		}
	})
}

func checkReduceScatter(t conformance.T, s suite) {
	forSizes(t, s, func(_ conformance.T, r *rig) {
		for _, dt := range types {
			for i, counts := range partitions(r.size) {
				in := r.summands(uint64(i), dt, int(total(counts)))
				for _, f := range reductions {
					r.scatter(dt, f, counts, in)
				}
			}
		}
	})
}
