package resnet

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
)

// Depth describes a model of the family.
type Depth struct {
	Blocks     [4]int // number of blocks in each stage
	Bottleneck bool   // 1x1, 3x3 and 1x1 convolutions, 4·C output channels; false: two 3x3 convolutions
}

// Family contains the depths of the published models.
var Family = map[string]Depth{
	"resnet18":  {Blocks: [4]int{2, 2, 2, 2}},
	"resnet34":  {Blocks: [4]int{3, 4, 6, 3}},
	"resnet50":  {Blocks: [4]int{3, 4, 6, 3}, Bottleneck: true},
	"resnet101": {Blocks: [4]int{3, 4, 23, 3}, Bottleneck: true},
	"resnet152": {Blocks: [4]int{3, 8, 36, 3}, Bottleneck: true},
}

// Options are the settings of the model.
type Options struct {
	// CIFARStem replaces the 7x7 convolution of stride 2 and the max pooling by a 3x3 convolution of stride 1. All
	// stages then have 16 times as many pixels.
	CIFARStem bool
	// ZeroInitResidual sets the initial gamma of the last BatchNorm in each block to 0.
	ZeroInitResidual bool
	// StochasticDepth is the probability that training drops the residual branch of the last block for a sample. The
	// probability grows linearly with the block, from 0 for the first block.
	StochasticDepth float64
}

// Build returns the network of the given depth.
//
// Legend: N samples; H, W image size; C channels of a stage: 64, 128, 256, 512; E expansion: 4 for bottlenecks, else
// 1.
func Build(d Depth, o Options) models.Classifier {
	return func(net *nn.Net, x *graph.Value, classes int) *graph.Value {
		if o.CIFARStem {
			x = net.Conv2D("conv1", x, nn.Conv{Out: 64, Kernel: 3, Padding: 1}) // (N, 64, H, W)
			x = net.BatchNorm("bn1", x, nn.Norm{ReLU: true})
		} else {
			x = net.Conv2D("conv1", x, nn.Conv{Out: 64, Kernel: 7, Stride: 2, Padding: 3}) // (N, 64, H/2, W/2)
			x = net.BatchNorm("bn1", x, nn.Norm{ReLU: true})
			x = net.MaxPool2D("maxpool", x, 3, 2, 1) // (N, 64, H/4, W/4)
		}
		block, channels := basic, 64
		if d.Bottleneck {
			block = bottleneck
		}
		at, blocks := 0, d.Blocks[0]+d.Blocks[1]+d.Blocks[2]+d.Blocks[3]
		for stage, count := range d.Blocks {
			for i := range count {
				stride := 1
				if stage > 0 && i == 0 {
					stride = 2
				}
				net.NextLayer()
				drop := o.StochasticDepth * float64(at) / float64(max(blocks-1, 1))
				x = block(net, fmt.Sprintf("layer%d.%d", stage+1, i), x, channels, stride, drop, o) // (N, E·C, H', W')
				at++
			}
			channels *= 2
		}
		net.NextLayer()
		x = net.GlobalAvgPool("avgpool", x)
		return net.Logits("fc", x, classes)
	}
}

// basic appends a block of two 3x3 convolutions and a shortcut.
func basic(net *nn.Net, name string, x *graph.Value, channels, stride int, drop float64, o Options) *graph.Value {
	y := net.Conv2D(name+".conv1", x, nn.Conv{Out: channels, Kernel: 3, Stride: stride, Padding: 1})
	y = net.BatchNorm(name+".bn1", y, nn.Norm{ReLU: true})
	y = net.Conv2D(name+".conv2", y, nn.Conv{Out: channels, Kernel: 3, Padding: 1})
	return residual(net, name, name+".bn2", y, shortcut(net, name, x, channels, stride), drop, o)
}

// bottleneck appends a block with a shortcut: a 1x1 convolution that reduces the channels, a 3x3 convolution, and a 1x1
// convolution that expands the channels again.
func bottleneck(net *nn.Net, name string, x *graph.Value, channels, stride int, drop float64, o Options) *graph.Value {
	y := net.Conv2D(name+".conv1", x, nn.Conv{Out: channels, Kernel: 1})
	y = net.BatchNorm(name+".bn1", y, nn.Norm{ReLU: true})
	y = net.Conv2D(name+".conv2", y, nn.Conv{Out: channels, Kernel: 3, Stride: stride, Padding: 1})
	y = net.BatchNorm(name+".bn2", y, nn.Norm{ReLU: true})
	y = net.Conv2D(name+".conv3", y, nn.Conv{Out: 4 * channels, Kernel: 1})
	return residual(net, name, name+".bn3", y, shortcut(net, name, x, 4*channels, stride), drop, o)
}

// residual ends a block. It normalises the result y of the branch, adds the shortcut, and applies ReLU. The parameter
// drop is the probability of dropping y.
func residual(net *nn.Net, name, norm string, y, shortcut *graph.Value, drop float64, o Options) *graph.Value {
	if drop == 0 || !net.Training {
		return net.BatchNorm(norm, y, nn.Norm{ReLU: true, Residual: shortcut, ZeroInit: o.ZeroInitResidual})
	}
	y = net.StochasticDepth(name+".drop", net.BatchNorm(norm, y, nn.Norm{ZeroInit: o.ZeroInitResidual}), drop)
	return net.Graph.Unary(name+".relu", graph.ReLU, net.Graph.Binary(name+".add", graph.Add, y, shortcut))
}

// shortcut returns x. If the block changes the shape, shortcut returns a projection of x.
func shortcut(net *nn.Net, name string, x *graph.Value, out, stride int) *graph.Value {
	if stride == 1 && x.Shape[1] == out {
		return x
	}
	x = net.Conv2D(name+".downsample.0", x, nn.Conv{Out: out, Kernel: 1, Stride: stride})
	return net.BatchNorm(name+".downsample.1", x, nn.Norm{})
}
