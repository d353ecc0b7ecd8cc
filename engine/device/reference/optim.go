package reference

import (
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
)

func init() {
	add(sumSquares, sumSquares)
	add(gradControl, gradControl)
	add(sgd[float32], sgd[float64])
	add(adamW[float32], adamW[float64])
	add(movingAverage[float32], movingAverage[float64])
}

func sumSquares(op device.SumSquares, in, out []operand) {
	x := load[float64](in[0])
	partial := make([]float64, out[0].shape().Elements())
	for i, v := range x {
		partial[int64(i)/op.Chunk] += float64(v * v)
	}
	store(out[0], partial)
}

func gradControl(op device.GradControl, in, out []operand) {
	unscale := load[float64](in[1])[0]
	sum := 0.0
	for _, p := range load[float64](in[0]) {
		sum += p
	}
	norm := math.Sqrt(sum) * unscale
	factor := unscale
	if ratio := op.MaxNorm / norm; op.MaxNorm != 0 && ratio < 1 { // if norm is NaN, ok is 0, and scale has no effect
		factor = unscale * ratio
	}
	ok := 1.0
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		ok = 0
	}
	store(out[0], []float64{norm, factor, ok})
}

// sgd rounds every operation separately, in the order of the op's definition. The conversions T(…) prevent fused
// operations. Elements outside all segments stay unchanged.
func sgd[T real](op device.SGD, in, out []operand) {
	hyper, control := load[T](in[0]), load[T](in[1])
	value, grad := load[T](in[2]), load[T](in[3])
	moment := make([]T, len(value))
	if op.Momentum != 0 {
		moment = load[T](in[4])
	}
	if control[2] == 0 {
		return
	}
	for _, s := range op.Segments {
		decay, rate := T(s.WeightDecay), T(hyper[0]*T(s.LRScale))
		for i := s.Offset; i < s.Offset+s.Length; i++ {
			w := value[i]
			g := T(grad[i] * control[1])
			g += T(decay * w)
			m := T(T(op.Momentum)*moment[i]) + g
			u := m
			if op.Nesterov {
				u = g + T(T(op.Momentum)*m)
			}
			moment[i] = m
			value[i] = w - T(rate*u)
		}
	}
	store(out[0], value)
	if op.Momentum != 0 {
		store(out[1], moment)
	}
}

// adamW rounds every operation separately, like sgd.
func adamW[T real](op device.AdamW, in, out []operand) {
	hyper, control := load[T](in[0]), load[T](in[1])
	value, grad := load[T](in[2]), load[T](in[3])
	first, second := load[T](in[4]), load[T](in[5])
	if control[2] == 0 {
		return
	}
	beta1, beta2 := T(op.Beta1), T(op.Beta2)
	rest1, rest2 := 1-beta1, 1-beta2
	for _, s := range op.Segments {
		decay := T(T(hyper[0]*T(s.LRScale)) * T(s.WeightDecay))
		rate := T(hyper[1] * T(s.LRScale))
		for i := s.Offset; i < s.Offset+s.Length; i++ {
			g := T(grad[i] * control[1])
			w := value[i]
			w -= T(decay * w)
			m := T(beta1*first[i]) + T(rest1*g)
			v := T(beta2*second[i]) + T(T(rest2*g)*g)
			denominator := T(squareRoot(v)/hyper[2]) + T(op.Eps)
			w -= T(rate * T(m/denominator))
			value[i], first[i], second[i] = w, m, v
		}
	}
	store(out[0], value)
	store(out[1], first)
	store(out[2], second)
}

// movingAverage rounds every operation separately, like sgd.
func movingAverage[T real](_ device.MovingAverage, in, out []operand) {
	weight, control := load[T](in[0])[0], load[T](in[1])
	average, value := load[T](in[2]), load[T](in[3])
	if control[2] == 0 {
		return
	}
	for i, x := range value {
		if d := x - average[i]; weight < 0.5 {
			average[i] += T(weight * d)
		} else {
			average[i] = x - T(d*(1-weight))
		}
	}
	store(out[0], average)
}
