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
		{math.Float32frombits(0x3f808000), 0x3f80}, // a tie goes to the even neighbour below
		{math.Float32frombits(0x3f818000), 0x3f82}, // a tie goes to the even neighbour above
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
