package pixels

import "math"

// Sharpness blends src (height, width, 3) with a blurred version of src, and writes the result to dst. A factor of 0
// gives the blurred version, 1 changes nothing, and more than 1 sharpens. The border pixels do not change. dst must
// not be src.
func Sharpness(dst, src []byte, width int, factor float64) {
	alpha, row := float32(factor), 3*width
	copy(dst, src)
	if alpha == 1 {
		return
	}
	for at := row; at+row < len(src); at += row {
		above, here, below, out := src[at-row:at], src[at:at+row], src[at+row:at+2*row], dst[at:at+row]
		for i := 3; i < row-3; i++ {
			// The kernel has weight 5 in the centre and weight 1 at the other 8 positions. The sum of the weights is
			// 13.
			sum := int(above[i-3]) + int(above[i]) + int(above[i+3]) + int(here[i-3]) + 5*int(here[i]) +
				int(here[i+3]) +
				int(below[i-3]) + int(below[i]) + int(below[i+3])
			out[i] = blend(byte((2*sum+13)/26), here[i], alpha)
		}
	}
}

// Affine maps output pixels to source pixels. The centre (x, y) of an output pixel maps to (m[0]·x + m[1]·y + m[2],
// m[3]·x + m[4]·y + m[5]).
type Affine [6]float64

// ShearX shifts each row by level times its distance from the top.
func ShearX(level float64) Affine { return Affine{1, level, 0, 0, 1, 0} }

// ShearY shifts each column by level times its distance from the left.
func ShearY(level float64) Affine { return Affine{1, 0, 0, level, 1, 0} }

// Translate shifts the image by whole pixels.
func Translate(x, y int) Affine { return Affine{1, 0, float64(-x), 0, 1, float64(-y)} }

// Rotate rotates the image around its centre, counterclockwise, by -90 to 90 degrees.
func Rotate(degrees float64, width, height int) Affine {
	sin, cos := sincos(float64(degrees * (math.Pi / 180)))
	m := Affine{cos, -sin, 0, sin, cos, 0}
	cx, cy := float64(width)/2, float64(height)/2
	m[2] = cx - (float64(m[0]*cx) + float64(m[1]*cy))
	m[5] = cy - (float64(m[3]*cx) + float64(m[4]*cy))
	return m
}

// Apply writes the mapped src (height, width, 3) to dst, which must not be src. It uses the nearest pixel of src;
// pixels outside src are black. Positions are in 16-bit fixed point.
func (m Affine) Apply(dst, src []byte, width, height int) {
	fixed := func(v float64) int { return int(math.Floor(float64(v*65536) + 0.5)) }
	dx, dy := fixed(m[0]), fixed(m[3])
	startX := fixed(m[2] + float64(m[0]*0.5) + float64(m[1]*0.5))
	startY := fixed(m[5] + float64(m[3]*0.5) + float64(m[4]*0.5))
	stepX, stepY := fixed(m[1]), fixed(m[4])
	for row := range height {
		x, y := startX+row*stepX, startY+row*stepY
		out := dst[3*row*width:][:3*width]
		for len(out) >= 3 {
			sx, sy := x>>16, y>>16
			if uint(sx) < uint(width) && uint(sy) < uint(height) {
				p := src[3*(sy*width+sx):][:3]
				out[0], out[1], out[2] = p[0], p[1], p[2]
			} else {
				out[0], out[1], out[2] = 0, 0, 0
			}
			out = out[3:]
			x, y = x+dx, y+dy
		}
	}
}

// sincos returns sine and cosine for |x| <= pi/2, exact except for the last bits. math.Sin may differ between
// architectures.
func sincos(x float64) (sin, cos float64) {
	sin, cos = x, 1
	termS, termC, square := x, 1.0, float64(x*x)
	for n := 2.0; n <= 24; n += 2 {
		termC = -float64(termC*square) / float64(n*(n-1))
		termS = -float64(termS*square) / float64(n*(n+1))
		cos, sin = cos+termC, sin+termS
	}
	return sin, cos
}
