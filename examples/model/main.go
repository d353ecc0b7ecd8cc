// Command model adds a model to hetero-train: MobileNet's depthwise separable convolutions.
package main

import (
	"fmt"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/program"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
)

// options contains the keys that only this model has.
type options struct{ Channels []int }

// Keys lists the options, each with its default, limits and description.
func (o *options) Keys() []config.Key {
	return []config.Key{
		config.Ints(&o.Channels, "channels", 16, 32, 64).Shapes().Unit("channels").NotEmpty().AtLeast(1).AtMost(4096).
			Doc("Channels of each block. Each block after the first one halves the image."),
	}
}

// Build returns the function that appends the network to a graph.
//
// Legend: N samples, C channels of a block, H and W height and width of its input.
func (o *options) Build() models.Classifier {
	return func(net *nn.Net, x *graph.Value, classes int) *graph.Value {
		for i, c := range o.Channels {
			name := func(layer string) string { return fmt.Sprintf("block%d.%s", i, layer) }
			if i == 0 {
				x = net.Conv2D(name("conv"), x, nn.Conv{Out: c, Kernel: 3, Padding: 1}) // (N, C, H, W)
			} else {
				in := x.Shape[1]
				x = net.Conv2D(name("depthwise"), x, nn.Conv{Out: in, Kernel: 3, Stride: 2, Padding: 1, Groups: in})
				x = net.BatchNorm(name("bn1"), x, nn.Norm{ReLU: true})
				x = net.Conv2D(name("pointwise"), x, nn.Conv{Out: c, Kernel: 1}) // (N, C, H/2, W/2)
			}
			x = net.BatchNorm(name("bn2"), x, nn.Norm{ReLU: true})
			net.NextLayer()
		}
		return net.Logits("fc", net.GlobalAvgPool("pool", x), classes) // (N, classes)
	}
}

func main() {
	program.Main(program.Model{
		Name: "separable",
		Doc:  "depthwise separable convolutions",
		New:  func() program.ModelOptions { return new(options) },
	})
}
