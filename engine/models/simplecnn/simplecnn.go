package simplecnn

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
)

// Options are the settings of the model.
type Options struct {
	Channels []int   // number of channels of each block; each block halves the height and width
	Dropout  float64 // dropout probability before the last layer
}

// Build returns the network.
//
// Legend: N samples, C channels of a block, H and W size of its input.
func Build(o Options) models.Classifier {
	return func(net *nn.Net, x *graph.Value, classes int) *graph.Value {
		for i, c := range o.Channels {
			name := func(layer string) string { return fmt.Sprintf("block%d.%s", i, layer) }
			x = net.Conv2D(name("conv1"), x, nn.Conv{Out: c, Kernel: 3, Padding: 1}) // (N, C, H, W)
			x = net.BatchNorm(name("bn1"), x, nn.Norm{ReLU: true})
			x = net.Conv2D(name("conv2"), x, nn.Conv{Out: c, Kernel: 3, Padding: 1})
			x = net.BatchNorm(name("bn2"), x, nn.Norm{ReLU: true})
			x = net.MaxPool2D(name("pool"), x, 2, 2, 0) // (N, C, H/2, W/2)
			net.NextLayer()
		}
		x = net.GlobalAvgPool("pool", x) // (N, C)
		x = net.Dropout("dropout", x, o.Dropout)
		return net.Logits("fc", x, classes) // (N, classes)
	}
}
