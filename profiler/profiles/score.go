package profiles

import (
	"fmt"
	"math"
)

// DefaultMemoryFraction is the default fraction of a step that is bound by memory. It comes from ResNet-50 at 224
// pixels in bf16 on an H100. With its arithmetic alone, this model would reach 40,700 images/s, and with the memory
// traffic of its layers, 10,800 images/s: 1 - 10.8/40.7 = 0.73. Most models have normalisations, activations and
// optimizers between matrix products, so they are closer to this value than to 0.
const DefaultMemoryFraction = 0.7

// bandwidthUnit scales scores such that 1 TFLOP/s and 10 GB/s give 1.0. The value has no effect on shares, because it
// scales all scores equally.
const bandwidthUnit = 10 // GB/s

// Formula is the formula of the score as text, for files and output.
const Formula = "tflops(dtype)^compute_share * (copy GB/s / 10)^memory_share"

// Score returns the compute score of a rank: the weighted geometric mean of its arithmetic speed and its memory
// bandwidth.
//
//	tflops          speed of matrix products in the element type of the training, TFLOP/s, > 0
//	gbytes          memory bandwidth (read and written), GB/s, > 0
//	memoryFraction  fraction of a step's time that is bound by memory, 0 to 1
//
// The mean is geometric because the time of a step is a sum of two parts. One part is inversely proportional to the
// arithmetic speed, the other to the bandwidth. The relative change of the time is therefore the mean of the relative
// changes of both speeds, weighted by the parts. This is exact for small differences between ranks. The balancer
// corrects larger differences.
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

// MemoryFraction returns the memory-bound fraction of a step on a device with the given speeds, in TFLOP/s and GB/s (a
// roofline model). It is the fraction of the minimum step time that is spent in operations whose memory traffic takes
// longer than their arithmetic. Without work it returns DefaultMemoryFraction.
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

// Relative returns the scores divided by the smallest score, so that the slowest rank has 1.0.
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
