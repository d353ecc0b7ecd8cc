package cuda_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Statistics must stay accurate if the mean is far from zero. After a convolution, cuDNN's engines offer sums of x and
// x² in f32 (GenStats), which lose this accuracy. The flag -v prints both errors.
func TestVarianceFarFromZero(t *testing.T) {
	dev, err := loadShim(t).Open(0, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	const limit = 4.0 / (1 << 24) // two units in the last place: the conformance suite's floor for statistics
	shape := tensor.Shape{8, 8, 56, 56}
	t.Logf("relative error of the variance, %v of bf16, limit %.1e; mean over deviation, ours, sums of x and x²", shape,
		limit)
	for _, ratio := range []float64{0, 0.5, 1, 2, 3, 5, 10, 30, 173} {
		ours, sums := varianceErrors(t, dev, normals(shape, ratio))
		t.Logf("%5g  %.1e  %.1e", ratio, ours, sums)
		if ours > limit {
			t.Errorf("mean of %g deviations: error %.2g, want at most %.2g", ratio, ours, limit)
		}
	}
}

// normals returns normally distributed values with deviation 1 and the given mean, rounded to bf16.
func normals(shape tensor.Shape, mean float64) devicetest.Tensor {
	r := rand.New(rand.NewPCG(1, 2))
	x := devicetest.Tensor{Spec: device.Spec(tensor.BF16, shape...), Values: make([]float64, shape.Elements())}
	for i := range x.Values {
		bits := math.Float32bits(float32(mean + r.NormFloat64()))
		x.Values[i] = float64(math.Float32frombits((bits + 0x8000) &^ 0xffff))
	}
	return x
}

// varianceErrors returns the relative errors, over all channels, of the device's statistics and of sums of x and x².
func varianceErrors(t *testing.T, dev device.Device, x devicetest.Tensor) (ours, sums float64) {
	r := devicetest.NewRunner(conformance.Go(t), dev)
	defer r.Close()
	r.Float = tensor.BF16
	size := 0.0
	for c, got := range r.Download(r.Do(device.BatchNormStats{}, r.Upload(x))[1]).Values {
		values := channelOf(x, c)
		n, mean, truth := float64(len(values)), 0.0, 0.0
		for _, v := range values {
			mean += float64(v) / n
		}
		for _, v := range values {
			truth += (float64(v) - mean) * (float64(v) - mean) / n
		}
		m := float64(pairwise(values, func(v float32) float32 { return v })) / n
		squares := float64(pairwise(values, func(v float32) float32 { return v * v })) / n
		size += truth * truth
		ours += math.Pow(got-truth, 2)
		sums += math.Pow(squares-m*m-truth, 2)
	}
	return math.Sqrt(ours / size), math.Sqrt(sums / size)
}

func channelOf(x devicetest.Tensor, c int) []float32 {
	s := x.Spec.Shape
	pixels := s[2] * s[3]
	var values []float32
	for n := range s[0] {
		for _, v := range x.Values[(n*s[1]+c)*pixels:][:pixels] {
			values = append(values, float32(v))
		}
	}
	return values
}

// pairwise adds f(v) over the values in f32 by halves, which has the smallest rounding error.
func pairwise(values []float32, f func(float32) float32) float32 {
	if len(values) == 1 {
		return f(values[0])
	}
	half := len(values) / 2
	return pairwise(values[:half], f) + pairwise(values[half:], f)
}
