package reference

import (
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func squareRoot[T real](x T) T { return T(math.Sqrt(float64(x))) }

// norm holds the operands that all BatchNorm ops have: x (N, C, H, W), gamma and beta (C), and the statistics, (G, C)
// or, if running, (C).
type norm[T real] struct {
	shape                 tensor.Shape
	group                 int // samples per group
	x                     []T
	mean, variance        []T
	gamma, beta           []T
	eps                   T
	statisticsArePerGroup bool
}

// loadNorm reads x, mean, var, gamma and beta.
func loadNorm[T real](in []operand, group int, eps float64) norm[T] {
	n := norm[T]{shape: in[0].shape(), group: group, x: load[T](in[0]), mean: load[T](in[1]), variance: load[T](in[2]),
		gamma: load[T](in[3]), beta: load[T](in[4]), eps: T(eps), statisticsArePerGroup: len(in[1].shape()) == 2}
	return n
}

// channel returns the channel of element i.
func channel(shape tensor.Shape, i int) int { return i / (shape[2] * shape[3]) % shape[1] }

// groupOf returns the statistics group of element i.
func groupOf(shape tensor.Shape, group, i int) int {
	if device.Groups(shape[0], group) == 1 {
		return 0
	}
	return i / (shape[1] * shape[2] * shape[3]) / group
}

// row returns the index of the statistics of element i.
func (n norm[T]) row(i int) int {
	if !n.statisticsArePerGroup {
		return channel(n.shape, i)
	}
	return groupOf(n.shape, n.group, i)*n.shape[1] + channel(n.shape, i)
}

// normalized returns x̂ of element i.
func (n norm[T]) normalized(i int) T {
	r := n.row(i)
	return (n.x[i] - n.mean[r]) / squareRoot(n.variance[r]+n.eps)
}

// scaled returns gamma·x̂ + beta of element i.
func (n norm[T]) scaled(i int) T {
	c := channel(n.shape, i)
	return T(n.gamma[c]*n.normalized(i)) + n.beta[c]
}

func batchNormStats[T real](op device.BatchNormStats, in, out []operand) {
	shape, x := in[0].shape(), load[T](in[0])
	counts := device.GroupCounts(shape, op.Group)
	mean := make([]T, len(counts)*shape[1])
	variance := make([]T, len(mean))
	row := func(i int) int { return groupOf(shape, op.Group, i)*shape[1] + channel(shape, i) }
	divide := func(sums []T) {
		for r := range sums {
			sums[r] /= T(counts[r/shape[1]])
		}
	}
	for i, v := range x {
		mean[row(i)] += v
	}
	divide(mean)
	for i, v := range x {
		d := v - mean[row(i)]
		variance[row(i)] += T(d * d)
	}
	divide(variance)
	store(out[0], mean)
	store(out[1], variance)
}

// batchNormMerge computes in f64 for any T. The explicit conversions prevent fused multiply-adds.
func batchNormMerge[T real](in, out []operand) {
	stats, samples, channels := load[T](in[0]), loadI32(in[1]), in[0].shape()[2]
	mean, variance := make([]T, channels), make([]T, channels)
	for c := range channels {
		var n, m, m2 float64
		for r, count := range samples {
			if count == 0 {
				continue
			}
			k := float64(count)
			t, d := n+k, float64(stats[2*r*channels+c])-m
			m += float64(float64(d*k) / t)
			m2 += float64(float64(stats[(2*r+1)*channels+c]) * k)
			m2 += float64(float64(float64(float64(d*d)*n)*k) / t)
			n = t
		}
		mean[c], variance[c] = T(m), T(m2/n)
	}
	store(out[0], mean)
	store(out[1], variance)
}

func batchNormApply[T real](op device.BatchNormApply, in, out []operand) {
	n := loadNorm[T](in, op.Group, op.Eps)
	z := make([]T, len(n.x))
	for i := range z {
		z[i] = n.scaled(i)
	}
	if op.Add {
		for i, r := range load[T](in[5]) {
			z[i] += r
		}
	}
	if op.ReLU {
		for i := range z {
			if op.Add {
				out[1].mem[i] = 0
				if z[i] > 0 {
					out[1].mem[i] = 1
				}
			}
			z[i] = max(z[i], 0)
		}
	}
	store(out[0], z)
}

func batchNormDiffReduce[T real](op device.BatchNormDiffReduce, in, out []operand) {
	n := loadNorm[T](in, op.Group, op.Eps)
	dz := load[T](in[5])
	if op.Two {
		for i, v := range load[T](in[6]) {
			dz[i] += v
		}
	}
	if op.ReLU {
		for i := range dz {
			positive := false
			if op.Add {
				positive = in[len(in)-1].mem[i] != 0
			} else {
				positive = n.scaled(i) > 0
			}
			if !positive {
				dz[i] = 0
			}
		}
	}
	diffGamma := make([]T, out[0].shape().Elements())
	diffBeta := make([]T, len(diffGamma))
	for i, v := range dz {
		diffGamma[n.row(i)] += T(v * n.normalized(i))
		diffBeta[n.row(i)] += v
	}
	store(out[0], diffGamma)
	store(out[1], diffBeta)
	if op.Add || op.Two {
		store(out[2], dz)
	}
}

func batchNormDiffApply[T real](op device.BatchNormDiffApply, in, out []operand) {
	n := loadNorm[T](in, op.Group, op.Eps)
	dz, diffGamma, diffBeta := load[T](in[5]), load[T](in[6]), load[T](in[7])
	counts := device.GroupCounts(n.shape, op.Group)
	if full := counts[0]; op.Count > 0 {
		for g := range counts {
			if counts[g] == full {
				counts[g] = op.Count
			}
		}
	}
	diffX := make([]T, len(dz))
	for i, v := range dz {
		if op.ReLU && !(n.scaled(i) > 0) {
			v = 0
		}
		r := n.row(i)
		count := T(counts[r/n.shape[1]])
		fromMean := diffBeta[r] / count
		fromVariance := T(n.normalized(i) * diffGamma[r] / count)
		diffX[i] = n.gamma[channel(n.shape, i)] / squareRoot(n.variance[r]+n.eps) * (v - fromMean - fromVariance)
	}
	store(out[0], diffX)
}

func finite[T real](v T) bool { return v-v == 0 }

// batchNormRunning computes in f64 for any T. The explicit conversions prevent fused multiply-adds.
func batchNormRunning[T real](op device.BatchNormRunning, in, out []operand) {
	runningMean, runningVar, mean, variance := load[T](in[0]), load[T](in[1]), load[T](in[2]), load[T](in[3])
	groups, channels := in[2].shape()[0], in[2].shape()[1]
	moved := func(running T, sum float64) T {
		return T(float64(running) + float64(op.Momentum*(sum/float64(groups)-float64(running))))
	}
	for c := range channels {
		var m, v float64
		for g, count := range op.Counts {
			unbias := 1.0
			if count > 1 {
				unbias = float64(count) / float64(count-1)
			}
			m += float64(mean[g*channels+c])
			v += float64(float64(variance[g*channels+c]) * unbias)
		}
		if !finite(m) || !finite(v) {
			continue // a skipped step changes nothing
		}
		runningMean[c], runningVar[c] = moved(runningMean[c], m), moved(runningVar[c], v)
	}
	store(out[0], runningMean)
	store(out[1], runningVar)
}
