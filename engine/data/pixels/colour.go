package pixels

import "math"

// Brightness mixes pix (n, 3) with black: 0 gives black, 1 changes nothing, more than 1 is brighter.
func Brightness(pix []byte, factor float64) {
	var t table
	for v := range t {
		t[v] = blend(0, byte(v), float32(factor))
	}
	t.apply(pix)
}

// Contrast mixes pix (n, 3) with its mean grey.
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

// Saturation mixes each pixel of pix (n, 3) with its grey.
func Saturation(pix []byte, factor float64) {
	alpha := float32(factor)
	if alpha == 1 {
		return
	}
	// Of a difference d from grey g, blend makes g + alpha·d; alpha·d is looked up.
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

// Hue turns the hue of pix (n, 3) by so many turns, -0.5 to 0.5, in steps of 1/255 of a turn.
func Hue(pix []byte, turns float64) {
	shift := uint8(int(turns * 255))
	for i := 0; i+2 < len(pix); i += 3 {
		p := pix[i : i+3 : i+3]
		h, s, v := hsv(p[0], p[1], p[2])
		p[0], p[1], p[2] = rgb(h+shift, s, v)
	}
}

// luma is ITU-R 601 grey in 16-bit fixed point.
func luma(r, g, b byte) byte {
	return byte((uint32(r)*19595 + uint32(g)*38470 + uint32(b)*7471 + 0x8000) >> 16)
}

// blend is from + alpha·(to - from), cut to a byte.
func blend(from, to byte, alpha float32) byte {
	if alpha == 1 {
		return to
	}
	return cut(float32(from) + float32(alpha*float32(int(to)-int(from))))
}

// cut drops the fraction and what lies outside of 0 … 255.
func cut(v float32) byte { return byte(int32(min(max(v, 0), 255))) }

// hsv is hue, saturation and value, each 0 … 255.
func hsv(r, g, b byte) (h, s, v byte) {
	most, least := max(r, g, b), min(r, g, b)
	if most == least {
		return 0, 0, most
	}
	span := float32(most - least)
	rc, gc, bc := float32(most-r)/span, float32(most-g)/span, float32(most-b)/span
	var hue float32
	switch most {
	case r:
		hue = bc - gc
	case g:
		hue = float32(2 + float64(rc) - float64(bc))
	default:
		hue = float32(4 + float64(gc) - float64(rc))
	}
	turn := float32(math.Mod(float64(hue)/6+1, 1))
	return byte(float64(turn) * 255), byte(float64(span/float32(most)) * 255), most
}

// rgb inverts hsv as far as bytes allow.
func rgb(h, s, v byte) (r, g, b byte) {
	if s == 0 {
		return v, v, v
	}
	fs := float32(float64(s) / 255)
	turn := float64(float32(float64(h) * 6 / 255))
	sector := math.Floor(turn)
	f := float64(float32(turn - sector))
	value, sat := float64(v), float64(fs)
	p := round(value * (1 - sat))
	q := round(value * (1 - float64(float32(sat*f))))
	t := round(value * (1 - float64(float32(sat*(1-f)))))
	switch int(sector) % 6 {
	case 0:
		return v, t, p
	case 1:
		return q, v, p
	case 2:
		return p, v, t
	case 3:
		return p, q, v
	case 4:
		return t, p, v
	}
	return v, p, q
}

func round(v float64) byte { return byte(min(max(math.Round(v), 0), 255)) }
