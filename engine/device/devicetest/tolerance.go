package devicetest

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// tolerance limits the error of an output; the package comment gives the formula.
type tolerance struct {
	exact bool    // the output must equal that of the reference device with the same types; floor is then unused
	floor float64 // part of the tolerance that does not depend on the plain run, in units of u·‖truth‖
	// for 16-bit outputs: error from roundings to 16 bits within the op, in units of the output's rounding error
	inner  float64
	reason string
}

const roundoff = 1.0 / (1 << 24) // u, the largest relative error of one rounding to f32

// Tolerances of most cases.
var (
	exact = tolerance{
		exact: true, reason: "elements are moved, selected, or the result of one correctly rounded operation"}
	// sums is the tolerance for sums. A device adds in another order than the plain run, whose result may be exact by
	// chance.
	sums = tolerance{floor: 2, reason: "one unit in the last place: a short sum may be exact in the plain run by luck"}
	// functions is the tolerance for library functions. In the plain run they are correctly rounded, but vectorised
	// functions need not be.
	functions = tolerance{
		floor: 4, reason: "two units in the last place, what vectorised exp, log, tanh and erf are commonly good for"}
	// statistics is the tolerance for long sums that are followed by a few roundings.
	statistics = tolerance{
		floor: 4, reason: "two units in the last place: x̂ takes a subtraction, a root and a division after the sums"}
)

// expected are results of the reference device for one output. judge computes only the results that its rule uses,
// because they take most of the suite's time on a fast device.
type expected struct {
	typed func() Tensor // with the types under test
	plain func() Tensor // with f32
	truth func() Tensor // with f64
}

// judge compares an output with the truth. For a chain, it uses typed instead of plain. terms is the norm of the terms
// whose sum is the output; 0 if terms cannot cancel.
func (tol tolerance) judge(got Tensor, want expected, chain bool, terms float64) error {
	if got.Spec.DType == tensor.Opaque {
		return nil // the suite cannot read opaque tensors; ops that read such tensors test the content
	}
	if tol.exact || !got.Spec.DType.IsFloat() {
		typed := want.typed()
		if !got.Spec.Shape.Equal(typed.Spec.Shape) || got.Spec.DType != typed.Spec.DType {
			return fmt.Errorf("got %v, want %v", got.Spec, typed.Spec)
		}
		return equal(got, typed)
	}
	truth := want.truth()
	// Only the shape is compared here: the runner has already compared the type of each output with that of the op.
	if !got.Spec.Shape.Equal(truth.Spec.Shape) {
		return fmt.Errorf("got %v, want %v", got.Spec, truth.Spec)
	}
	for i, w := range truth.Values {
		g := got.Values[i]
		if math.IsNaN(w) != math.IsNaN(g) || math.IsInf(w, 0) != math.IsInf(g, 0) {
			return fmt.Errorf("element %d: got %g, want %g", i, g, w)
		}
	}
	size := norm(truth.Values, nil)
	floor := tol.floor * roundoff * max(size, terms)
	var limit float64
	switch dt := got.Spec.DType; {
	case dt == tensor.F64:
		limit = math.Ldexp(size, -40)
	case dt == tensor.BF16 || dt == tensor.F16:
		rounded := norm(reference.Decode(dt, reference.Encode(dt, truth.Values)), truth.Values)
		if chain {
			limit = 3*norm(want.typed().Values, truth.Values) + rounded
			if terms > 0 {
				limit += 2 * floor
			}
		} else {
			limit = (1+tol.inner)*rounded + 2*(3*norm(want.plain().Values, truth.Values)+floor)
		}
	case chain:
		limit = 3*norm(want.typed().Values, truth.Values) + floor
	default:
		limit = 3*norm(want.plain().Values, truth.Values) + floor
	}
	if err := norm(got.Values, truth.Values); !(err <= limit) {
		i := farthest(got.Values, truth.Values)
		return fmt.Errorf("%v: error %.3g, want at most %.3g (norm of the truth %.3g, of its terms %.3g, error of the plain run %.3g; %s); farthest: element %d: got %.9g, want %.9g",
			got.Spec, err, limit, size, terms, norm(want.plain().Values, truth.Values), tol.reason, i, got.Values[i],
			truth.Values[i])
	}
	return nil
}

// equal requires equal values; -0 equals 0, and NaN equals NaN.
func equal(got, want Tensor) error {
	for i, w := range want.Values {
		if g := got.Values[i]; g != w && !(math.IsNaN(g) && math.IsNaN(w)) {
			return fmt.Errorf("%v: element %d: got %.9g, want exactly %.9g", got.Spec, i, g, w)
		}
	}
	return nil
}

// norm returns the Euclidean norm of a - b over elements where both are finite; b = nil means zeros.
func norm(a, b []float64) float64 {
	sum := 0.0
	for i, v := range a {
		if b != nil {
			v -= b[i]
		}
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			sum += v * v
		}
	}
	return math.Sqrt(sum)
}

func farthest(a, b []float64) int {
	worst := 0
	for i := range a {
		if math.Abs(a[i]-b[i]) > math.Abs(a[worst]-b[worst]) {
			worst = i
		}
	}
	return worst
}
