package cpu

import (
	"bytes"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Images above 16 MiB exceed the caches. The kernels then use other loads and stores than for the smaller images of
// devicetest. The result of each sample must be bit-equal to its result in a small batch.
func TestBatchNormOfImagesBeyondTheCaches(t *testing.T) {
	needtest.NotShort(t, "images of 18 MiB")
	const channels, height, width, few = 32, 96, 96, 2
	for dt, samples := range map[tensor.DType]int{tensor.F32: 16, tensor.BF16: 32} {
		t.Run(dt.String(), func(t *testing.T) {
			dev := open(t, device.Options{Threads: 2})
			defer dev.Close()
			// The large batch repeats the samples of the small one. The test repeats and compares bytes, because
			// converting all numbers of the large batch would take seconds.
			var small [3][]byte
			for i := range small {
				x := devicetest.Random(dt, tensor.Shape{few, channels, height, width}, uint64(1+i),
					devicetest.Uniform(-1, 1))
				small[i] = reference.Encode(dt, x.Values)
			}
			vectors := func(seed uint64, low float64, shape ...int) devicetest.Tensor {
				return devicetest.Random(tensor.F32, shape, seed, devicetest.Uniform(low, 1))
			}
			// passes runs the three passes of BatchNorm that write images. It returns only these images.
			passes := func(n int) [][]byte {
				r := devicetest.NewRunner(t, dev)
				defer r.Close()
				var images [3]devicetest.Operand
				for i, one := range small {
					many := slices.Repeat(one, n/few)
					raw := device.TensorSpec{DType: tensor.Opaque, Shape: tensor.Shape{len(many)}}
					images[i] = r.Upload(devicetest.Tensor{Spec: raw, Raw: many})
					images[i].Spec = device.Spec(dt, n, channels, height, width)
				}
				x, residual, diff := images[0], images[1], images[2]
				norm := []devicetest.Operand{x, r.Upload(vectors(4, -1, 1, channels)),
					r.Upload(vectors(5, 0.1, 1, channels)),
					r.Upload(vectors(6, -1, channels)), r.Upload(vectors(7, -1, channels))}
				with := func(more ...devicetest.Operand) []devicetest.Operand { return slices.Concat(norm, more) }
				sums := []devicetest.Operand{r.Upload(vectors(8, -1, 1, channels)),
					r.Upload(vectors(9, -1, 1, channels))}

				y := r.Do(device.BatchNormApply{ReLU: true}, norm...)
				sum := r.Do(device.BatchNormApply{ReLU: true, Add: true}, with(residual)...)
				dz := r.Do(device.BatchNormDiffReduce{ReLU: true, Add: true, Two: true},
					with(diff, residual, sum[1])...)
				diffX := r.Do(device.BatchNormDiffApply{ReLU: true, Count: 1e6}, with(diff, sums[0], sums[1])...)
				var written [][]byte
				for _, o := range []devicetest.Operand{y[0], sum[0], dz[2], diffX[0]} {
					written = append(written, r.Bytes(r.Reorder(o, device.Plain).Region))
				}
				return written
			}
			many, one := passes(samples), passes(few)
			for i, name := range []string{"apply", "apply with residual", "diff_reduce", "diff_apply"} {
				for at := range samples / few {
					if got := many[i][at*len(one[i]) : (at+1)*len(one[i])]; !bytes.Equal(got, one[i]) {
						t.Errorf("%s: samples from %d on, of %d, differ from those in a batch of %d", name, few*at,
							samples, few)
					}
				}
			}
		})
	}
}
