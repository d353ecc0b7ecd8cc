package trace

import (
	"encoding/binary"
	"math"
	"sort"
	"sync"
	"time"
)

// The limits of the bins are the defaults of torch.utils.tensorboard's add_histogram. Positive limits grow from
// leastLimit to mostLimit by the factor limitRatio. The negative limits are the same with a minus sign, and one limit
// is 0.
const (
	leastLimit = 1e-12
	mostLimit  = 1e20
	limitRatio = 1.1
)

// limits are all limits of bins, in ascending order. Bin i contains the values v with limits[i] <= v < limits[i+1]. The
// last bin also contains its upper limit.
var limits = func() []float64 {
	var positive []float64
	for v := leastLimit; v < mostLimit; v *= limitRatio {
		positive = append(positive, v)
	}
	n := len(positive)
	all := make([]float64, 2*n+1)
	for i, v := range positive {
		all[n+1+i], all[n-1-i] = v, -v
	}
	return all
}()

// firstBins returns, for the upper 16 bits of a float32, the bin of the smallest value with these bits. All values with
// these bits differ by less than 1 %, so they are in this bin or in the next one. The table is computed at the first
// use: this takes a millisecond, and most processes need no histogram.
var firstBins = sync.OnceValue(func() []int32 {
	bins := make([]int32, 1<<16)
	for i := range bins {
		bits := uint32(i) << 16
		if i >= 1<<15 { // for negative values, the smallest value has the largest lower bits
			bits |= 1<<16 - 1
		}
		v := float64(math.Float32frombits(bits))
		bins[i] = int32(sort.Search(len(limits), func(k int) bool { return limits[k] > v }) - 1) // -1: below all bins
	}
	return bins
})

// Histogram counts values in the bins that torch.utils.tensorboard uses by default. It ignores NaN and Inf. Values
// beyond 1e20 are in no bin. Create a Histogram with NewHistogram.
type Histogram struct {
	counts       []float64
	n            int64
	min, max     float64
	sum, squares float64
}

// NewHistogram returns an empty histogram.
func NewHistogram() *Histogram {
	h := &Histogram{counts: make([]float64, len(limits)-1)}
	h.Reset()
	return h
}

// Reset removes all values.
func (h *Histogram) Reset() {
	clear(h.counts)
	*h = Histogram{counts: h.counts, min: math.Inf(1), max: math.Inf(-1)}
}

// Add adds the values, each multiplied by factor.
func (h *Histogram) Add(values []float32, factor float64) {
	last, first := len(limits)-1, firstBins()
	for _, value := range values {
		v := float64(value) * factor
		if v-v != 0 { // NaN or Inf
			continue
		}
		h.n++
		h.min, h.max = min(h.min, v), max(h.max, v)
		h.sum, h.squares = h.sum+v, h.squares+v*v
		if v < limits[0] || v > limits[last] {
			continue
		}
		at := max(int(first[math.Float32bits(float32(v))>>16]), 0)
		if at < last && v >= limits[at+1] {
			at++
		} else if v < limits[at] { // the rounding of the product to float32 has changed the bin
			at--
		}
		h.counts[min(at, last-1)]++ // the last bin contains both of its limits
	}
}

// support returns the range of bins from the first to the last one with values. The last one is end-1. ok is false if
// no bin contains values.
func (h *Histogram) support() (first, end int, ok bool) {
	first = -1
	for i, n := range h.counts {
		if n > 0 {
			if end = i + 1; first < 0 {
				first = i
			}
		}
	}
	return first, end, first >= 0
}

// Fields of HistogramProto in summary.proto.
const (
	valueHistogram       = 5<<3 | bytesN
	histogramMin         = 1<<3 | fixed8
	histogramMax         = 2<<3 | fixed8
	histogramNum         = 3<<3 | fixed8
	histogramSum         = 4<<3 | fixed8
	histogramSumSquares  = 5<<3 | fixed8
	histogramLimits      = 6<<3 | bytesN
	histogramBucketCount = 7<<3 | bytesN
)

func appendDouble(b []byte, key byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(append(b, key), math.Float64bits(v))
}

func appendDoubles(b []byte, key byte, first float64, rest []float64) []byte {
	b = binary.AppendUvarint(append(b, key), uint64(8*(len(rest)+1)))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(first))
	for _, v := range rest {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

// appendHistogram appends an Event that contains a histogram. It appends nothing if no bin contains values. It adds one
// empty bin before the first bin with values, which gives readers the lower limit of that bin.
func appendHistogram(b []byte, step int64, at time.Time, tag string, h *Histogram) []byte {
	first, end, ok := h.support()
	if !ok {
		return b
	}
	proto := appendDouble(nil, histogramMin, h.min)
	proto = appendDouble(proto, histogramMax, h.max)
	proto = appendDouble(proto, histogramNum, float64(h.n))
	proto = appendDouble(proto, histogramSum, h.sum)
	proto = appendDouble(proto, histogramSumSquares, h.squares)
	proto = appendDoubles(proto, histogramLimits, limits[first], limits[first+1:end+1])
	proto = appendDoubles(proto, histogramBucketCount, 0, h.counts[first:end])
	value := appendBytes(appendString(nil, valueTag, tag), valueHistogram, proto)
	return appendBytes(appendEvent(b, step, at), eventSummary, appendBytes(nil, summaryValue, value))
}

// Histogram adds the histogram of a step. If no bin contains values, it does nothing.
func (b *Board) Histogram(step int64, at time.Time, tag string, h *Histogram) {
	if _, _, ok := h.support(); ok {
		b.add(func(event []byte) []byte { return appendHistogram(event, step, at, tag, h) })
	}
}
