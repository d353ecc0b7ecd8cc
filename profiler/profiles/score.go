package profiles

import (
	"fmt"
	"math"
)

// DefaultMemoryFraction is the default fraction of a step that is bound by memory. It is that of ResNet-50 at 224 pixels
// in bf16 on an H100. Its arithmetic alone would allow 40,700 images/s, its memory traffic, layer by layer, 10,800: 1 -
// 10.8/40.7 = 0.73. Most models have normalisations, activations and optimizers between products, and are nearer to
// this value than to pure arithmetic.
const DefaultMemoryFraction = 0.7

// bandwidthUnit makes scores readable: 1 TFLOP/s and 10 GB/s give 1.0. A common factor changes no share.
const bandwidthUnit = 10 // GB/s

// Formula is the score as text, for files and output.
const Formula = "tflops(dtype)^compute_share * (copy GB/s / 10)^memory_share"

// Score returns a rank's compute score: the weighted geometric mean of its arithmetic and its memory bandwidth.
//
//	tflops       of matrix products in the training's element type, TFLOP/s, > 0
//	gbytes       memory bandwidth (read and written), GB/s, > 0
//	memoryFraction  fraction of a step's time that is bound by memory, 0 to 1
//
// The mean is geometric, because a step's time is a sum of parts that shrink with one or the other: d(log time) is the
// mean of the two d(log)s, weighted by the parts. It is exact for small differences between ranks; the balancer
// corrects the rest.
func Score(tflops, gbytes, memoryFraction float64) (float64, error) {
	for _, v := range []struct {
		name  string
		value float64
	}{{"TFLOP/s", tflops}, {"GB/s", gbytes}} {
		if !(v.value > 0) || math.IsInf(v.value, 0) {
			return 0, fmt.Errorf("compute score: got %v %s, want a positive number", v.value, v.name)
		}
	}
	if !(memoryFraction >= 0 && memoryFraction <= 1) {
		return 0, fmt.Errorf("compute score: memory-bound fraction: got %v, want 0 to 1", memoryFraction)
	}
	return math.Pow(tflops, 1-memoryFraction) * math.Pow(gbytes/bandwidthUnit, memoryFraction), nil
}

// Work is the minimum arithmetic and memory traffic of one operation of a step.
type Work struct{ FLOPs, Bytes int64 }

// MemoryFraction returns the fraction of a step's least time in operations whose memory traffic takes longer than their
// arithmetic, on a device with these speeds (a roofline). Without work it returns DefaultMemoryFraction.
func MemoryFraction(step []Work, tflops, gbytes float64) float64 {
	var bound, total float64
	for _, w := range step {
		arithmetic, traffic := float64(w.FLOPs)/(tflops*1e12), float64(w.Bytes)/(gbytes*1e9)
		total += max(arithmetic, traffic)
		if traffic > arithmetic {
			bound += traffic
		}
	}
	if !(total > 0) || math.IsInf(total, 0) {
		return DefaultMemoryFraction
	}
	return bound / total
}

// Relative divides scores by the smallest one, so the slowest rank has 1.0.
func Relative(scores []float64) []float64 {
	slowest := math.Inf(1)
	for _, s := range scores {
		slowest = min(slowest, s)
	}
	out := make([]float64, len(scores))
	for i, s := range scores {
		out[i] = s / slowest
	}
	return out
}
