package jpeg

import "image"

// Colours as libjpeg and libjpeg-turbo compute them by default ("fancy upsampling", jdsample.c; jdcolor.c), so that the
// pixels without libturbojpeg equal those with it. A subsampled colour is interpolated linearly between the centres of
// its neighbours: 3/4 of the nearer one and 1/4 of the other. Half of the results round up, half down, so that the mean
// does not change. image/jpeg repeats the nearest colour instead.

// upsampler writes the pixels of one image.
type upsampler struct {
	img           *image.YCbCr
	width, height int      // pixels
	wide, tall    bool     // a colour belongs to 2 columns, to 2 rows
	columns, rows int      // number of stored colours
	line          [2][]int // colours of one row of pixels, for both channels
	sums          []int    // (columns): a row of colours, interpolated vertically, times 4
}

func newUpsampler(img *image.YCbCr) *upsampler {
	u := &upsampler{img: img, width: img.Rect.Dx(), height: img.Rect.Dy()}
	switch img.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		u.wide = true
	case image.YCbCrSubsampleRatio420:
		u.wide, u.tall = true, true
	case image.YCbCrSubsampleRatio440:
		u.tall = true
	}
	u.columns, u.rows = u.width, u.height
	if u.wide {
		u.columns = (u.width + 1) / 2
	}
	if u.tall {
		u.rows = (u.height + 1) / 2
	}
	if u.wide && u.columns <= 2 { // too narrow: libjpeg repeats colours
		u.wide, u.tall = false, false
	}
	for k := range u.line {
		u.line[k] = make([]int, u.width+1)
	}
	u.sums = make([]int, u.columns)
	return u
}

// rgb writes all pixels to pix (height, width, 3).
func (u *upsampler) rgb(pix []byte) {
	for y := range u.height {
		u.colours(u.line[0], u.img.Cb, y)
		u.colours(u.line[1], u.img.Cr, y)
		luma := u.img.Y[u.img.YOffset(u.img.Rect.Min.X, u.img.Rect.Min.Y+y):][:u.width]
		row := pix[3*y*u.width:][:3*u.width]
		for x, v := range luma {
			row[3*x], row[3*x+1], row[3*x+2] = rgbOf(int(v), u.line[0][x], u.line[1][x])
		}
	}
}

// colours writes the values of one channel for row y to line.
func (u *upsampler) colours(line []int, plane []byte, y int) {
	min := u.img.Rect.Min
	if !u.wide && !u.tall {
		for x := range u.width {
			line[x] = int(plane[u.img.COffset(min.X+x, min.Y+y)])
		}
		return
	}
	if !u.tall {
		u.widen(line, plane[u.img.COffset(min.X, min.Y+y):])
		return
	}
	near := y / 2
	other := near + 2*(y%2) - 1 // the row above of an even row, otherwise the row below
	other = max(0, other)
	if other >= u.rows {
		other = u.rows - 1
	}
	at := func(row int) []byte { return plane[u.img.COffset(min.X, min.Y+2*row):][:u.columns] }
	a, b := at(near), at(other)
	for i := range u.sums {
		u.sums[i] = 3*int(a[i]) + int(b[i])
	}
	if !u.wide {
		for x := range u.width {
			line[x] = (u.sums[x] + 1 + y%2) >> 2
		}
		return
	}
	last := u.columns - 1
	put := func(x, v int) {
		if x < len(line) {
			line[x] = v
		}
	}
	for i, this := range u.sums {
		left, right := (4*this+8)>>4, (4*this+7)>>4
		if i > 0 {
			left = (3*this + u.sums[i-1] + 8) >> 4
		}
		if i < last {
			right = (3*this + u.sums[i+1] + 7) >> 4
		}
		put(2*i, left)
		put(2*i+1, right)
	}
}

// widen interpolates one row horizontally.
func (u *upsampler) widen(line []int, row []byte) {
	last := u.columns - 1
	for i := range u.columns {
		this := int(row[i])
		left, right := this, this
		if i > 0 {
			left = (3*this + int(row[i-1]) + 1) >> 2
		}
		if i < last {
			right = (3*this + int(row[i+1]) + 2) >> 2
		}
		line[2*i] = left
		if 2*i+1 < len(line) {
			line[2*i+1] = right
		}
	}
}

// Factors of the conversion from YCbCr to RGB (JFIF), in 16-bit fixed point.
const (
	redOfCr   = 91881  // 1.40200
	blueOfCb  = 116130 // 1.77200
	greenOfCr = 46802  // 0.71414
	greenOfCb = 22554  // 0.34414
	half      = 1 << 15
)

func rgbOf(y, cb, cr int) (r, g, b uint8) {
	cb, cr = cb-128, cr-128
	return clamp(y + (redOfCr*cr+half)>>16), clamp(y + (-greenOfCb*cb-greenOfCr*cr+half)>>16),
		clamp(y + (blueOfCb*cb+half)>>16)
}

func clamp(v int) uint8 { return uint8(min(max(v, 0), 255)) }
