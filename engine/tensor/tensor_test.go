package tensor

import (
	"math"
	"testing"
)

func TestShapeCountsElementsAndStrides(t *testing.T) {
	s := Shape{2, 3, 4}
	if got := s.Elements(); got != 24 {
		t.Errorf("elements of %v: got %d, want 24", s, got)
	}
	st := s.Strides()
	if st[0] != 12 || st[1] != 4 || st[2] != 1 {
		t.Errorf("strides of %v: got %v, want [12 4 1]", s, st)
	}
	if got := (Shape{}).Elements(); got != 1 {
		t.Errorf("elements of a scalar: got %d, want 1", got)
	}
}

func TestShapeCheckRefusesWhatCannotExist(t *testing.T) {
	for _, s := range []Shape{{0}, {-1, 2}, {1, 1, 1, 1, 1, 1, 1}, {1 << 40, 1 << 40}} {
		if s.Check() == nil {
			t.Errorf("%v: no error", s)
		}
	}
	if err := (Shape{1, 2, 3}).Check(); err != nil {
		t.Error(err)
	}
}

func TestBF16RoundsToNearestEven(t *testing.T) {
	for _, c := range []struct {
		in   float32
		want uint16
	}{
		{1, 0x3f80}, {-2, 0xc000}, {0, 0},
		{math.Float32frombits(0x3f808000), 0x3f80}, // a tie is rounded to the even neighbour, here the lower one
		{math.Float32frombits(0x3f818000), 0x3f82}, // a tie is rounded to the even neighbour, here the upper one
		{math.Float32frombits(0x3f808001), 0x3f81},
		{float32(math.Inf(1)), 0x7f80},
		{math.MaxFloat32, 0x7f80},
	} {
		if got := BF16FromF32(c.in); got != c.want {
			t.Errorf("%g: got %#04x, want %#04x", c.in, got, c.want)
		}
	}
	if n := F32FromBF16(BF16FromF32(float32(math.NaN()))); n == n {
		t.Errorf("NaN became %g", n)
	}
}

func TestF16RoundsToNearestEven(t *testing.T) {
	for _, c := range []struct {
		in   float64
		want uint16
	}{
		{0, 0}, {1, 0x3c00}, {-2, 0xc000}, {65504, 0x7bff}, {65519.99, 0x7bff},
		{65520, 0x7c00}, {1e10, 0x7c00}, {-1e10, 0xfc00}, {math.Inf(1), 0x7c00},
		{1 + 1.0/2048, 0x3c00}, // a tie is rounded to the even neighbour, here the lower one
		{1 + 3.0/2048, 0x3c02}, // a tie is rounded to the even neighbour, here the upper one
		{0x1p-14, 0x0400}, {0x1p-24, 0x0001}, {0x1.8p-24, 0x0002}, {0x1p-25, 0}, {0x1.000002p-25, 0x0001}, {0x1p-26, 0},
		{0x1.ffep-15, 0x0400}, // halfway between the largest subnormal number, 0x3ff, and the smallest normal number
	} {
		if got := F16FromF32(float32(c.in)); got != c.want {
			t.Errorf("%g: got %#04x, want %#04x", c.in, got, c.want)
		}
	}
	if n := F32FromF16(F16FromF32(float32(math.NaN()))); n == n {
		t.Errorf("NaN became %g", n)
	}
}

// Every binary16 number is also an f32 number. Conversion to f32 and back must therefore return the same bits. A number
// between two neighbours must be rounded to the nearer one.
func TestF16IsTheInverseOfItsF32(t *testing.T) {
	for h := range uint32(0x7c00) {
		f, next := F32FromF16(uint16(h)), F32FromF16(uint16(h+1))
		if got := F16FromF32(f); uint32(got) != h {
			t.Fatalf("%#04x = %g came back as %#04x", h, f, got)
		}
		if got := F16FromF32(-f); uint32(got) != h|0x8000 {
			t.Fatalf("%#04x = %g came back as %#04x", h|0x8000, -f, got)
		}
		if h+1 == 0x7c00 {
			break
		}
		middle := f + (next-f)/2
		even := h + h&1
		below, above := math.Nextafter32(middle, 0), math.Nextafter32(middle, next)
		if got := F16FromF32(middle); uint32(got) != even {
			t.Fatalf("%g, between %g and %g: got %#04x, want %#04x", middle, f, next, got, even)
		}
		if h > 0 && uint32(F16FromF32(below)) != h || uint32(F16FromF32(above)) != h+1 {
			t.Fatalf("around %g: got %#04x and %#04x, want %#04x and %#04x", middle, F16FromF32(below),
				F16FromF32(above), h, h+1)
		}
	}
}
