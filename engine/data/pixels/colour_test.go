package pixels

import (
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// plainHSV and plainRGB are simple versions of Pillow's conversions. They are not optimized for speed.
func plainHSV(r, g, b byte) (h, s, v byte) {
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

func plainRGB(h, s, v byte) (r, g, b byte) {
	if s == 0 {
		return v, v, v
	}
	fs := float32(float64(s) / 255)
	turn := float64(float32(float64(h) * 6 / 255))
	sector := math.Floor(turn)
	f := float64(float32(turn - sector))
	value, sat := float64(v), float64(fs)
	round := func(v float64) byte { return byte(min(max(math.Round(v), 0), 255)) }
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

// TestHueOfEveryColour compares the conversions of all 16.7 million colours, in both directions.
func TestHueOfEveryColour(t *testing.T) {
	needtest.NotShort(t, "takes seconds")
	faults := 0
	for c := range 1 << 24 {
		x, y, z := byte(c>>16), byte(c>>8), byte(c)
		if !(x == y && y == z) {
			h, s, v := hsv(x, y, z)
			if wantH, wantS, wantV := plainHSV(x, y, z); h != wantH || s != wantS || v != wantV {
				faults++
				t.Errorf("hsv of (%d, %d, %d): got (%d, %d, %d), want (%d, %d, %d)", x, y, z, h, s, v, wantH, wantS,
					wantV)
			}
		}
		r, g, b := rgb(x, y, z)
		if wantR, wantG, wantB := plainRGB(x, y, z); r != wantR || g != wantG || b != wantB {
			faults++
			t.Errorf("rgb of (%d, %d, %d): got (%d, %d, %d), want (%d, %d, %d)", x, y, z, r, g, b, wantR, wantG, wantB)
		}
		if faults > 10 {
			t.Fatal("and so on")
		}
	}
}
