package reference

import (
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func init() {
	add(batchNormStats[float32], batchNormStats[float64])
	add(batchNormMerge[float32], batchNormMerge[float64])
	add(batchNormApply[float32], batchNormApply[float64])
	add(batchNormDiffReduce[float32], batchNormDiffReduce[float64])
	add(batchNormDiffApply[float32], batchNormDiffApply[float64])
	add(batchNormRunning[float32], batchNormRunning[float64])
}

func squareRoot[T real](x T) T { return T(math.Sqrt(float64(x))) }

// norm holds the operands that all BatchNorm ops have: x (N, C, H, W), gamma and beta (C), and the statistics. The
// statistics have shape (G, C), or (C) if they are running statistics.
type norm[T real] struct {
	planes
	x               []T
	mean, deviation []T // deviation: sqrt(variance + eps)
	gamma, beta     []T
}

// planes are the (H, W) planes of a tensor (N, C, H, W).
type planes struct {
	shape    tensor.Shape
	group    int  // samples per group
	perGroup bool // statistics have shape (G, C), not (C)
}

// each calls f for each plane: its channel, the index of its statistics, and the range of its elements.
func (p planes) each(f func(c, r, from, end int)) {
	pixels, oneGroup := p.shape[2]*p.shape[3], device.Groups(p.shape[0], p.group) == 1
	for n := range p.shape[0] {
		firstRow := 0
		if p.perGroup && !oneGroup {
			firstRow = n / p.group * p.shape[1]
		}
		for c := range p.shape[1] {
			from := (n*p.shape[1] + c) * pixels
			f(c, firstRow+c, from, from+pixels)
		}
	}
}

// loadNorm reads x, mean, var, gamma and beta.
func loadNorm[T real](in []operand, group int, eps float64) norm[T] {
	n := norm[T]{planes: planes{in[0].shape(), group, len(in[1].shape()) == 2}, x: load[T](in[0]), mean: load[T](in[1]),
		deviation: load[T](in[2]),
		gamma:     load[T](in[3]), beta: load[T](in[4])}
	for r, variance := range n.deviation {
		n.deviation[r] = squareRoot(variance + T(eps))
	}
	return n
}

// normalized returns x̂ of element i, whose statistics have index r.
func (n *norm[T]) normalized(i, r int) T { return (n.x[i] - n.mean[r]) / n.deviation[r] }

// scaled returns gamma·x̂ + beta of element i of channel c.
func (n *norm[T]) scaled(i, c, r int) T { return T(n.gamma[c]*n.normalized(i, r)) + n.beta[c] }

func batchNormStats[T real](op device.BatchNormStats, in, out []operand) {
	shape, x := in[0].shape(), load[T](in[0])
	counts := device.GroupCounts(shape, op.Group)
	mean := make([]T, len(counts)*shape[1])
	variance := make([]T, len(mean))
	all := planes{shape, op.Group, true}
	divide := func(sums []T) {
		for r := range sums {
			sums[r] /= T(counts[r/shape[1]])
		}
	}
	all.each(func(_, r, from, end int) {
		for _, v := range x[from:end] {
			mean[r] += v
		}
	})
	divide(mean)
	all.each(func(_, r, from, end int) {
		for _, v := range x[from:end] {
			d := v - mean[r]
			variance[r] += T(d * d)
		}
	})
	divide(variance)
	store(out[0], mean)
	store(out[1], variance)
}

// batchNormMerge computes in f64 for any T. The explicit conversions prevent fused multiply-adds.
func batchNormMerge[T real](_ device.BatchNormMerge, in, out []operand) {
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
	n.each(func(c, r, from, end int) {
		for i := from; i < end; i++ {
			z[i] = n.scaled(i, c, r)
		}
	})
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
	diffGamma := make([]T, out[0].shape().Elements())
	diffBeta := make([]T, len(diffGamma))
	n.each(func(c, r, from, end int) {
		for i := from; i < end; i++ {
			if op.ReLU {
				positive := false
				if op.Add {
					positive = in[len(in)-1].mem[i] != 0
				} else {
					positive = n.scaled(i, c, r) > 0
				}
				if !positive {
					dz[i] = 0
				}
			}
			diffGamma[r] += T(dz[i] * n.normalized(i, r))
			diffBeta[r] += dz[i]
		}
	})
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
	n.each(func(c, r, from, end int) {
		count := T(counts[r/n.shape[1]])
		fromMean, slope := diffBeta[r]/count, n.gamma[c]/n.deviation[r]
		for i := from; i < end; i++ {
			v := dz[i]
			if op.ReLU && !(n.scaled(i, c, r) > 0) {
				v = 0
			}
			fromVariance := T(n.normalized(i, r) * diffGamma[r] / count)
			diffX[i] = slope * (v - fromMean - fromVariance)
		}
	})
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
			continue // a step with non-finite statistics is skipped, so it must change nothing
		}
		runningMean[c], runningVar[c] = moved(runningMean[c], m), moved(runningVar[c], v)
	}
	store(out[0], runningMean)
	store(out[1], runningVar)
}
