package collectivetest

import (
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// In some cases, another order of addition can give the sum, with rounding at every step. In the other cases, no order
// can give it.
func TestSumsOfAnyOrder(t *testing.T) {
	inf, nan, largest := math.Inf(1), math.NaN(), float64(math.MaxFloat32)
	for _, c := range []struct {
		name      string
		dt        tensor.DType
		summands  []float64
		got, want float64
		possible  bool
	}{
		{"the same", tensor.F32, []float64{1, 2, 3}, 6, 6, true},
		{"one ulp away", tensor.F32, []float64{1, 2, 3}, math.Nextafter(6, 7), 6, true},
		{"a part is missing", tensor.F32, []float64{1, 2, 3}, 5, 6, false},
		{"cancellation, where the small one is lost", tensor.F32, []float64{1e8, 1, -1e8}, 1, 0, true},
		{"more than that", tensor.F32, []float64{1e8, 1, -1e8}, 80, 0, false},
		{"bf16 rounds at every step", tensor.BF16, []float64{256, 1, 1, 1}, 256, 259, true},
		{"but not so far", tensor.BF16, []float64{256, 1, 1, 1}, 270, 259, false},
		{"zero is zero", tensor.F32, []float64{0, 0, 0}, 1e-45, 0, false},
		{"NaN stays", tensor.F32, []float64{1, nan, 2}, 3, nan, false},
		{"infinity stays", tensor.F32, []float64{1, inf, 2}, largest, inf, false},
		{"of both signs", tensor.F32, []float64{inf, -inf, 2}, nan, nan, true},
		{"of both signs, one lost", tensor.F32, []float64{inf, -inf, 2}, inf, nan, false},
		{"no NaN from nowhere", tensor.F32, []float64{1, 2, 3}, nan, 6, false},
		{"an overflow on the way", tensor.F32, []float64{largest, largest, -largest}, inf, largest, true},
		{"or none", tensor.F32, []float64{largest, largest, -largest}, largest, inf, true},
	} {
		if got := possible(c.dt, c.summands, c.got, c.want); got != c.possible {
			t.Errorf("%s: %v: sum %v instead of %v: got %v, want %v", c.name, c.summands, c.got, c.want, got,
				c.possible)
		}
	}
}
