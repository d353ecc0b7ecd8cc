package pixels

import "math"

// Brightness blends pix (n, 3) with black. A factor of 0 gives black, and 1 changes nothing. Larger factors are
// brighter.
func Brightness(pix []byte, factor float64) {
	var t table
	for v := range t {
		t[v] = blend(0, byte(v), float32(factor))
	}
	t.apply(pix)
}

// Contrast blends pix (n, 3) with its mean grey.
func Contrast(pix []byte, factor float64) {
	sum := 0
	for i := 0; i+2 < len(pix); i += 3 {
		sum += int(luma(pix[i], pix[i+1], pix[i+2]))
	}
	mean := byte(float64(sum)/float64(len(pix)/3) + 0.5)
	var t table
	for v := range t {
		t[v] = blend(mean, byte(v), float32(factor))
	}
	t.apply(pix)
}

// Saturation blends each pixel of pix (n, 3) with its own grey.
func Saturation(pix []byte, factor float64) {
	alpha := float32(factor)
	if alpha == 1 {
		return
	}
	// If a value differs from grey g by d, blend computes g + alpha·d. The table contains alpha·d for all d.
	var scaled [511]float32
	for d := range scaled {
		scaled[d] = alpha * float32(d-255)
	}
	for i := 0; i+2 < len(pix); i += 3 {
		p := pix[i : i+3 : i+3]
		grey := luma(p[0], p[1], p[2])
		g, at := float32(grey), 255-int(grey)
		p[0] = cut(g + scaled[at+int(p[0])])
		p[1] = cut(g + scaled[at+int(p[1])])
		p[2] = cut(g + scaled[at+int(p[2])])
	}
}

// Hue rotates the hue of pix (n, 3) by turns, from -0.5 to 0.5, in steps of 1/255 of a turn.
func Hue(pix []byte, turns float64) {
	shift := uint8(int(turns * 255))
	for i := 0; i+2 < len(pix); i += 3 {
		p := pix[i : i+3 : i+3]
		if p[0] == p[1] && p[1] == p[2] { // grey has no hue
			continue
		}
		h, s, v := hsv(p[0], p[1], p[2])
		p[0], p[1], p[2] = rgb(h+shift, s, v)
	}
}

// luma returns the ITU-R 601 grey of a colour, computed in 16-bit fixed point.
func luma(r, g, b byte) byte {
	return byte((uint32(r)*19595 + uint32(g)*38470 + uint32(b)*7471 + 0x8000) >> 16)
}

// blend returns from + alpha·(to - from), clamped to a byte.
func blend(from, to byte, alpha float32) byte {
	if alpha == 1 {
		return to
	}
	return cut(float32(from) + float32(alpha*float32(int(to)-int(from))))
}

// cut truncates v to an integer and clamps it to 0 … 255.
func cut(v float32) byte { return byte(int32(min(max(v, 0), 255))) }

// hsv returns the hue, saturation and value of a pixel, each 0 … 255. The pixel must not be grey.
func hsv(r, g, b byte) (h, s, v byte) {
	most, least := max(r, g, b), min(r, g, b)
	span := float32(most - least)
	// In sixths of a turn, red has hue 0, green 2 and blue 4. The difference of the other two channels shifts the hue.
	// The code has no branches, because their directions would be unpredictable.
	next, last, corner := g, b, 0
	if most == g {
		next, last, corner = b, r, 2
	}
	if most == b {
		next, last, corner = r, g, 4
	}
	if most == r {
		next, last, corner = g, b, 0
	}
	hue := float32(float64(corner) + float64(float32(most-last)/span) - float64(float32(most-next)/span))
	turn := float64(hue)/6 + 1 // 5/6 to 11/6
	if turn >= 1 {
		turn--
	}
	return byte(int32(float64(float32(turn)) * 255)), byte(int32(float64(span/float32(most)) * 255)), most
}

// sector describes the colours of one hue. Of the three channels, one equals the value and one is the lowest. The third
// is in between.
type sector struct {
	fraction         float64 // fraction of the saturation by which the middle channel is below the value
	red, green, blue uint8   // bit positions in a word of value, lowest and middle, one byte each
}

var sectors = func() (all [256]sector) {
	const value, least, between = 0, 8, 16
	order := [6][3]uint8{{value, between, least}, {between, value, least}, {least, value, between},
		{least, between, value}, {between, least, value}, {value, least, between}}
	for h := range all {
		turn := float64(float32(float64(h) * 6 / 255))
		number := math.Floor(turn)
		fraction := float64(float32(turn - number))
		if int(number)%2 == 0 {
			fraction = 1 - fraction
		}
		channels := order[int(number)%6]
		all[h] = sector{fraction, channels[0], channels[1], channels[2]}
	}
	return all
}()

var saturations = func() (all [256]float64) {
	for s := range all {
		all[s] = float64(float32(float64(s) / 255))
	}
	return all
}()

// rgb inverts hsv within the precision of bytes.
func rgb(h, s, v byte) (r, g, b byte) {
	at, value, saturation := &sectors[h], float64(v), saturations[s]
	least := round(float64(value * (1 - saturation)))
	between := round(float64(value * (1 - float64(float32(saturation*at.fraction)))))
	all := uint32(v) | least<<8 | between<<16
	return byte(all >> (at.red & 31)), byte(all >> (at.green & 31)), byte(all >> (at.blue & 31))
}

// round rounds a result of rgb to the nearest integer; halves are rounded up.
func round(v float64) uint32 { return uint32(int32(v + 0.5)) }
