package data

import "github.com/hetero-train/hetero-train/engine/data/jpeg"

// Bilinear resampling with antialiasing, as in torchvision and Pillow for 8-bit images. Along each axis, an output
// pixel is a weighted mean of input pixels. The weights form a triangle whose half-width is the reduction factor, but
// at least one input pixel. Weights are in 22-bit fixed point.
//
// Rows are resampled first, then columns. The intermediate result is rounded to 8 bits. All pixel arithmetic uses
// integers, so the results are bit-equal on all machines.

const weightBits = 22

// axis maps one axis of the source to a grid of output pixels, and selects a window of this grid.
type axis struct {
	from, to     float64 // span of the source that the whole grid covers, in source pixels
	lo, hi       int     // range of source pixels that may be read
	grid         int     // number of output pixels that cover the span
	first, count int     // first pixel and number of pixels of the required window of the grid
}

// taps are the weights of one axis.
type taps struct {
	start  []int32 // (count) first source pixel
	num    []int32 // (count) number of source pixels
	weight []int32 // (count, width); the sum of a row is about 1<<weightBits
	width  int
}

// setup computes the weights of a. Conversions to float64 round each product separately, so the results are bit-equal
// on machines with and without fused multiply-add.
func (t *taps) setup(a axis) {
	scale := (a.to - a.from) / float64(a.grid)
	support := max(scale, 1)
	inverse := 1 / support
	t.width = min(int(2*support)+3, a.hi-a.lo)
	t.start, t.num = resize(t.start, a.count), resize(t.num, a.count)
	t.weight = resize(t.weight, a.count*t.width)
	for k := range a.count {
		center := a.from + float64((float64(a.first+k)+0.5)*scale)
		start := max(int(max(center-support+0.5, 0)), a.lo)
		end := min(int(center+support+0.5), a.hi)
		// A span narrower than half a pixel may contain no pixel centre. Use the nearest pixel in this case.
		start = min(start, a.hi-1)
		end = max(end, start+1)
		w := t.weight[k*t.width:][:end-start]
		var sum float64
		for i := range w {
			sum += triangle((float64(start+i) - center + 0.5) * inverse)
		}
		for i := range w {
			v := triangle((float64(start+i) - center + 0.5) * inverse)
			if sum == 0 {
				v, sum = 1, 1
			}
			w[i] = int32(float64(v/sum*(1<<weightBits)) + 0.5)
		}
		t.start[k], t.num[k] = int32(start), int32(end-start)
	}
}

func triangle(x float64) float64 { return max(0, 1-max(x, -x)) }

// resize returns a slice of length n with unspecified contents. It reuses the memory of s if possible.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// resampler contains the buffers of resample. They are reused for the next image.
type resampler struct {
	x, y taps
	rows []byte  // (source rows needed, x.count, 3)
	sums []int32 // (x.count, 3), for one output row
}

// resample writes a window of the resized src to dst (y.count, x.count, 3). src has width pixels per row. x and y
// describe the axes.
func (r *resampler) resample(dst, src []byte, width int, x, y axis) {
	r.x.setup(x)
	r.y.setup(y)
	top := int(r.y.start[0])
	last := len(r.y.start) - 1
	bottom := int(r.y.start[last] + r.y.num[last])
	r.rows = resize(r.rows, (bottom-top)*x.count*3)
	if jpeg.Resample(dst, src, width, r.x.list(), r.y.list(), r.rows) {
		return
	}
	r.plain(dst, src, width, x, y)
}

func (t *taps) list() jpeg.Taps {
	return jpeg.Taps{Start: t.start, Num: t.num, Weight: t.weight, Width: t.width}
}

// plain is the Go version of resample, with the same results. It requires that setup has computed the weights.
func (r *resampler) plain(dst, src []byte, width int, x, y axis) {
	top := int(r.y.start[0])
	last := len(r.y.start) - 1
	bottom := int(r.y.start[last] + r.y.num[last])
	for row := top; row < bottom; row++ {
		r.x.horizontal(r.rows[(row-top)*x.count*3:][:x.count*3], src[row*width*3:][:width*3])
	}
	for k := range y.count {
		r.vertical(dst[k*x.count*3:][:x.count*3], k, top)
	}
}

const weightHalf = 1 << (weightBits - 1)

// horizontal resamples one row: src (width, 3) to dst (count, 3).
func (t *taps) horizontal(dst, src []byte) {
	for k, start := range t.start {
		w := t.weight[k*t.width:][:t.num[k]]
		s := src[3*start:]
		red, green, blue := int32(weightHalf), int32(weightHalf), int32(weightHalf)
		for _, v := range w {
			red += v * int32(s[0])
			green += v * int32(s[1])
			blue += v * int32(s[2])
			s = s[3:]
		}
		d := dst[3*k:][:3]
		d[0], d[1], d[2] = clampByte(red), clampByte(green), clampByte(blue)
	}
}

// vertical computes output row k. The parameter top is the source row at the start of the buffer rows.
func (r *resampler) vertical(dst []byte, k, top int) {
	t, n := &r.y, len(dst)
	w := t.weight[k*t.width:][:t.num[k]]
	rows := r.rows[(int(t.start[k])-top)*n:]
	r.sums = resize(r.sums, n)
	sums := r.sums[:n]
	for c := range sums {
		sums[c] = weightHalf
	}
	for ; len(w) >= 2; w, rows = w[2:], rows[2*n:] { // two rows at a time halve memory accesses to sums
		a, b := rows[:n], rows[n:2*n]
		w0, w1 := w[0], w[1]
		for c := range sums {
			sums[c] += w0*int32(a[c]) + w1*int32(b[c])
		}
	}
	if len(w) == 1 {
		a, w0 := rows[:n], w[0]
		for c := range sums {
			sums[c] += w0 * int32(a[c])
		}
	}
	for c := range sums {
		dst[c] = clampByte(sums[c])
	}
}

// clampByte converts a weighted sum of bytes to a byte. The sum of rounded weights may slightly exceed 1.
func clampByte(sum int32) byte { return byte(min(sum>>weightBits, 255)) }
