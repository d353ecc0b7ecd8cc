package reference

import "github.com/hetero-train/hetero-train/engine/device"

func init() {
	add(layerNorm[float32], layerNorm[float64])
	add(layerNormDiff[float32], layerNormDiff[float64])
	add(biasGELU[float32], biasGELU[float64])
	add(biasGELUDiff[float32], biasGELUDiff[float64])
}

// layerNorm normalises each row of src, or of src + residual.
func layerNorm[T real](op device.LayerNorm, in, out []operand) {
	x, gamma, beta := load[T](in[0]), load[T](in[1]), load[T](in[2])
	if op.Add {
		for i, r := range load[T](in[3]) {
			x[i] += r
		}
		store(out[3], x)
		x = load[T](out[3]) // the rounded sum, because the gradient reads it
	}
	channels := len(gamma)
	means, inverses := make([]T, len(x)/channels), make([]T, len(x)/channels)
	for r := range means {
		row := x[r*channels : (r+1)*channels]
		var sum, squares T
		for _, v := range row {
			sum += v
		}
		mean := sum / T(channels)
		for _, v := range row {
			squares += T((v - mean) * (v - mean))
		}
		means[r], inverses[r] = mean, 1/squareRoot(squares/T(channels)+T(op.Eps))
		for c, v := range row {
			row[c] = T(T((v-mean)*inverses[r])*gamma[c]) + beta[c]
		}
	}
	store(out[0], x)
	store(out[1], means)
	store(out[2], inverses)
}

// layerNormDiff uses x̂ = (x - mean)·inverse and g = diff_dst·gamma: diff_x = inverse·(g - mean(g) - x̂·mean(g·x̂)).
func layerNormDiff[T real](op device.LayerNormDiff, in, out []operand) {
	diff, x := load[T](in[0]), load[T](in[1])
	means, inverses, gamma := load[T](in[2]), load[T](in[3]), load[T](in[4])
	channels := len(gamma)
	diffGamma, diffBeta := make([]T, channels), make([]T, channels)
	diffX := make([]T, len(x))
	for r := range means {
		var sum, product T
		for c := range channels {
			i := r*channels + c
			x[i] = (x[i] - means[r]) * inverses[r]
			diffGamma[c] += T(diff[i] * x[i])
			diffBeta[c] += diff[i]
			g := diff[i] * gamma[c]
			sum += g
			product += T(g * x[i])
		}
		sum /= T(channels)
		product /= T(channels)
		for c := range channels {
			i := r*channels + c
			diffX[i] = inverses[r] * (T(diff[i]*gamma[c]) - sum - T(x[i]*product))
		}
	}
	if op.Plus {
		for i, d := range load[T](in[5]) {
			diffX[i] += d
		}
	}
	store(out[0], diffX)
	store(out[1], diffGamma)
	store(out[2], diffBeta)
}

// biasGELU applies GELU to the sum of each row and bias.
func biasGELU[T real](op device.BiasGELU, in, out []operand) {
	x, bias := load[T](in[0]), load[T](in[1])
	for i, v := range x {
		x[i] = apply(op.Func, v+bias[i%len(bias)])
	}
	store(out[0], x)
}

func biasGELUDiff[T real](op device.BiasGELUDiff, in, out []operand) {
	diff, x, bias := load[T](in[0]), load[T](in[1]), load[T](in[2])
	diffBias := make([]T, len(bias))
	for i, v := range x {
		diff[i] *= derivative(op.Func, v+bias[i%len(bias)])
		diffBias[i%len(bias)] += diff[i]
	}
	store(out[0], diff)
	store(out[1], diffBias)
}
