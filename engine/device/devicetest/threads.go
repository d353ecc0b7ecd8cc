package devicetest

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// runThreads requires bit-equal results with different thread counts. Training with ranks on different CPUs depends on
// this.
func runThreads(t conformance.T, open Opener, caps Caps) {
	s := normShape{n: 13, c: 35, h: 9, w: 7, group: 4}
	g := device.Groups(s.n, s.group)
	cases := []valueCase{
		{name: "batch_norm stats", inputs: []input{s.images(symmetric)},
			run: one(device.BatchNormStats{Group: s.group})},
		{name: "batch_norm stats of the whole batch", inputs: []input{s.images(symmetric)},
			run: one(device.BatchNormStats{})},
		{name: "batch_norm diff_reduce", inputs: append(s.normInputs(), s.images(symmetric)),
			run: one(device.BatchNormDiffReduce{Group: s.group, Eps: normEps, ReLU: true})},
		{name: "batch_norm diff_apply", inputs: append(s.normInputs(), s.images(symmetric), params(symmetric, g, s.c),
			params(symmetric, g, s.c)),
			run: one(device.BatchNormDiffApply{Group: s.group, Eps: normEps})},
		{name: "global_avg_pool", inputs: []input{s.images(symmetric)}, run: one(device.GlobalAvgPool{})},
		{name: "sum over samples and pixels", inputs: []input{s.images(symmetric)},
			run: one(device.Reduce{Func: device.Sum, Axes: []int{0, 2, 3}})},
		{name: "sum of everything", inputs: []input{params(symmetric, 100_003)},
			run: one(device.Reduce{Func: device.Sum, Axes: []int{0}})},
		{name: "softmax_cross_entropy",
			inputs: []input{floats(Uniform(-5, 5), 65, 1000), fixedType(tensor.I32, Integers(0, 999), 65)},
			run:    one(device.SoftmaxCrossEntropy{LabelSmoothing: 0.1})},
		{name: "sum_squares", inputs: []input{params(symmetric, 100_003)}, run: one(device.SumSquares{Chunk: 1 << 12})},
	}
	for _, c := range append(cases, transformerThreads()...) {
		for _, dt := range caps.Types {
			t.Run(fmt.Sprintf("%s/%v", c.name, dt), func(t conformance.T) {
				values := c.materialize(typesFor(dt))
				var first []Tensor
				for threads := 1; threads <= 3; threads++ {
					dev := opened(t, open, device.Options{Threads: threads})
					got := c.on(t, dev, caps, typesFor(dt), Free, values)
					if threads == 1 {
						first = got
					}
					for i := range got {
						if err := equal(got[i], first[i]); err != nil {
							t.Errorf("%d threads, output %d differs from that of 1 thread: %v", threads, i, err)
						}
					}
				}
			})
		}
	}
}
