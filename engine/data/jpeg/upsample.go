package jpeg

import "fmt"

// Colours as libjpeg and libjpeg-turbo compute them by default ("fancy upsampling", jdsample.c; jdcolor.c). A
// subsampled channel is interpolated linearly between the centres of its neighbours: 3/4 of the nearer one and 1/4 of
// the other. Half of the results round up, half down, so that the mean does not change.

// upsampler holds the rows of an image at full size.
type upsampler struct {
	lines [4][]byte // one row of each channel
	sums  []int32   // a row of samples, interpolated vertically, times 4
}

// expansion describes how often each sample of a channel is repeated.
type expansion struct {
	h, v   int
	smooth bool // samples are interpolated
}

// expansion returns the expansion of a channel.
func (p *picture) expansion(c *channel) (expansion, error) {
	h, v := c.h*c.size/p.smallest, c.v*c.size/p.smallest
	if p.hMost%h != 0 || p.vMost%v != 0 {
		return expansion{}, fmt.Errorf("jpeg: sampling factors %d x %d of %d x %d, want a whole number of pixels", c.h,
			c.v, p.hMost, p.vMost)
	}
	e := expansion{h: p.hMost / h, v: p.vMost / v}
	fancy := p.smallest > 1
	switch e {
	case expansion{h: 2, v: 1}, expansion{h: 2, v: 2}:
		e.smooth = fancy && c.width > 2
	case expansion{h: 1, v: 2}:
		e.smooth = fancy
	}
	return e, nil
}

// write writes the pixels of the image to pix (height, width, 3).
func (p *picture) write(pix []byte, width, height int) error {
	var expansions [4]expansion
	for i, c := range p.channels {
		e, err := p.expansion(c)
		if err != nil {
			return err
		}
		expansions[i] = e
		p.lines[i] = grow(p.lines[i], width+4)
	}
	stored := p.stored()
	var rows [4][]byte
	for y := range height {
		for i, c := range p.channels {
			rows[i] = p.row(p.lines[i], c, expansions[i], y)[:width]
		}
		to := pix[3*y*width:][:3*width]
		switch stored {
		case grey:
			for x, v := range rows[0] {
				to[3*x], to[3*x+1], to[3*x+2] = v, v, v
			}
		case rgb:
			interleave(to, rows[0], rows[1], rows[2])
		case ycc:
			fromYCC(to, rows[0], rows[1], rows[2])
		case ycck:
			fromYCC(to, rows[0], rows[1], rows[2])
			for i, v := range to {
				to[i] = 255 - v
			}
			withBlack(to, rows[3])
		case cmyk:
			interleave(to, rows[0], rows[1], rows[2])
			withBlack(to, rows[3])
		}
	}
	return nil
}

// row returns row y of a channel at full size: in line, or where it is stored.
func (p *picture) row(line []byte, c *channel, e expansion, y int) []byte {
	stride := c.stride * c.size
	at := func(row int) []byte { return c.plane[row*stride:][:stride] }
	near := at(y / e.v)
	if !e.smooth {
		switch e.h {
		case 1:
			return near
		case 2:
			for x := range min(len(line)/2, stride) {
				line[2*x], line[2*x+1] = near[x], near[x]
			}
		default:
			for x := range line {
				line[x] = near[min(x/e.h, stride-1)]
			}
		}
		return line
	}
	near = near[:c.width]
	if e.v == 1 {
		widen(line, near)
		return line
	}
	// The other row is the one above for an even row of pixels, otherwise the one below.
	other := at(min(max(0, y/2+2*(y%2)-1), c.height-1))[:c.width]
	if e.h == 1 {
		bias := int32(1 + y%2)
		for x, v := range near {
			line[x] = byte((3*int32(v) + int32(other[x]) + bias) >> 2)
		}
		return line
	}
	if cap(p.sums) < c.width {
		p.sums = make([]int32, c.width)
	}
	sums := p.sums[:c.width]
	for x, v := range near {
		sums[x] = 3*int32(v) + int32(other[x])
	}
	widenSums(line, sums)
	return line
}

// widen interpolates a row of at least 3 samples to pairs of samples.
func widen(line, row []byte) {
	this := int32(row[0])
	line = line[:2*len(row)]
	line[0] = row[0]
	for x := 1; x < len(row); x++ {
		next := int32(row[x])
		pair := line[2*x-1 : 2*x+1 : 2*x+1]
		pair[0], pair[1] = byte((3*this+next+2)>>2), byte((3*next+this+1)>>2)
		this = next
	}
	line[len(line)-1] = byte(this)
}

// widenSums interpolates a row of at least 3 samples, times 4, to pairs of samples.
func widenSums(line []byte, sums []int32) {
	this := sums[0]
	line = line[:2*len(sums)]
	line[0] = byte((4*this + 8) >> 4)
	for x := 1; x < len(sums); x++ {
		next := sums[x]
		pair := line[2*x-1 : 2*x+1 : 2*x+1]
		pair[0], pair[1] = byte((3*this+next+7)>>4), byte((3*next+this+8)>>4)
		this = next
	}
	line[len(line)-1] = byte((4*this + 7) >> 4)
}

func interleave(to, r, g, b []byte) {
	for x, v := range r {
		to[3*x], to[3*x+1], to[3*x+2] = v, g[x], b[x]
	}
}

// Products of the conversion from YCbCr to RGB (JFIF), in 16-bit fixed point. Those of red and blue are rounded to
// whole numbers. Half a level is added to those of green.
var (
	redOfCr, blueOfCb    [256]int32
	greenOfCr, greenOfCb [256]int32
)

func init() {
	const half = 1 << 15
	for i := range 256 {
		v := int32(i - 128)
		redOfCr[i], blueOfCb[i] = (91881*v+half)>>16, (116130*v+half)>>16 // 1.40200, 1.77200
		greenOfCr[i], greenOfCb[i] = -46802*v, -22554*v+half              // 0.71414, 0.34414
	}
}

func fromYCC(to, luma, cb, cr []byte) {
	cb, cr = cb[:len(luma)], cr[:len(luma)]
	to = to[:3*len(luma)]
	for x, v := range luma {
		y, b, r := int32(v), cb[x], cr[x]
		pixel := to[3*x : 3*x+3 : 3*x+3]
		pixel[0] = clamp(y + redOfCr[r])
		pixel[1] = clamp(y + (greenOfCb[b]+greenOfCr[r])>>16)
		pixel[2] = clamp(y + blueOfCb[b])
	}
}

func clamp(v int32) uint8 {
	if uint32(v) > 255 {
		return uint8(^(v >> 31))
	}
	return uint8(v)
}

// withBlack converts four inks to RGB with Pillow's arithmetic. The slice to contains the first three inks and receives
// the result. Like Pillow, withBlack treats the bytes as inverted: 255 means no ink.
func withBlack(to, black []byte) {
	for x, k := range black {
		light := int(k)
		for i := 3 * x; i < 3*x+3; i++ {
			product := (255-int(to[i]))*light + 128
			to[i] = byte(light - (product>>8+product)>>8) // a quotient by 255, rounded
		}
	}
}
