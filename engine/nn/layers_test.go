package nn_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// describe returns one line for each declaration and each node of a layer.
func describe(g *graph.Graph) []string {
	var lines []string
	for _, p := range g.Params {
		lines = append(lines, fmt.Sprintf("param %v: %v", p, p.Init))
	}
	for _, s := range g.States {
		lines = append(lines, fmt.Sprintf("state %v: %v", s, s.Init))
	}
	for _, n := range g.Nodes {
		lines = append(lines, fmt.Sprintf("%s %+v %s -> %v%v", n.Op.Kind(), n.Op, n.Name, n.Out[0].DType,
			n.Out[0].Shape))
	}
	return lines
}

func TestLayersDeclareParametersAndNodes(t *testing.T) {
	for _, c := range []struct {
		name  string
		net   nn.Net
		layer func(net *nn.Net, g *graph.Graph)
		want  []string
	}{
		{"convolution with the defaults", nn.Net{Compute: tensor.F32}, func(net *nn.Net, g *graph.Graph) {
			net.Conv2D("conv", g.Input("x", tensor.F32, 2, 8, 5, 5), nn.Conv{Out: 2, Kernel: 2})
		}, []string{
			"param conv.weight f32(2, 8, 2, 2): normal mean 0 deviation 0.5", // sqrt(2 / (2·2·2))
			"conv2d {Window:{Stride:[1 1] Padding:[0 0] Dilation:[1 1]} Groups:1} conv -> f32(2, 2, 4, 4)",
		}},
		{"convolution with everything, in bf16", nn.Net{Compute: tensor.BF16}, func(net *nn.Net, g *graph.Graph) {
			net.Conv2D("conv", g.Input("x", tensor.BF16, 2, 8, 9, 9),
				nn.Conv{Out: 8, Kernel: 1, Stride: 2, Padding: 1, Dilation: 3, Groups: 4, Bias: true})
		}, []string{
			"param conv.weight f32(8, 2, 1, 1): normal mean 0 deviation 0.5", // f32; fan out as in PyTorch
			"param conv.bias f32(8): constant 0",
			"reorder {To:bf16} conv.weight as bf16 -> bf16(8, 2, 1, 1)",
			"conv2d {Window:{Stride:[2 2] Padding:[1 1] Dilation:[3 3]} Groups:4} conv -> bf16(2, 8, 6, 6)",
		}},
		{"normalisation in training", nn.Net{Compute: tensor.F32, Training: true, GhostGroup: 2},
			func(net *nn.Net, g *graph.Graph) {
				net.BatchNorm("bn", g.Input("x", tensor.F32, 5, 3, 2, 2), nn.Norm{ReLU: true})
			}, []string{
				"param bn.weight f32(3): constant 1",
				"param bn.bias f32(3): constant 0",
				"state bn.running_mean f32(3): constant 0",
				"state bn.running_var f32(3): constant 1",
				"batch_norm_stats {Group:2} bn stats -> f32(3, 3)",
				"batch_norm_running {Momentum:0.1 Counts:[8 8 4]} bn running -> f32(3)",
				"batch_norm_apply {Group:2 Eps:1e-05 ReLU:true Add:false} bn -> f32(5, 3, 2, 2)",
			}},
		{"normalisation in evaluation knows no groups", nn.Net{Compute: tensor.F32, GhostGroup: 2},
			func(net *nn.Net, g *graph.Graph) {
				x := g.Input("x", tensor.F32, 5, 3, 2, 2)
				net.BatchNorm("bn", x, nn.Norm{ReLU: true, Residual: x, ZeroInit: true})
			}, []string{
				"param bn.weight f32(3): constant 0",
				"param bn.bias f32(3): constant 0",
				"state bn.running_mean f32(3): constant 0",
				"state bn.running_var f32(3): constant 1",
				"batch_norm_apply {Group:0 Eps:1e-05 ReLU:true Add:true} bn -> f32(5, 3, 2, 2)",
			}},
		{"logits of a bf16 net are f32", nn.Net{Compute: tensor.BF16}, func(net *nn.Net, g *graph.Graph) {
			net.Logits("fc", g.Input("x", tensor.BF16, 2, 16), 3)
		}, []string{
			"param fc.weight f32(3, 16): uniform in [-0.25, 0.25)",
			"param fc.bias f32(3): uniform in [-0.25, 0.25)",
			"reorder {To:bf16} fc.weight as bf16 -> bf16(3, 16)",
			"linear {To:f32} fc -> f32(2, 3)",
		}},
		{"linear keeps the compute type", nn.Net{Compute: tensor.F32}, func(net *nn.Net, g *graph.Graph) {
			net.Linear("fc", g.Input("x", tensor.F32, 2, 4), 3, tensor.Invalid)
		}, []string{
			"param fc.weight f32(3, 4): uniform in [-0.5, 0.5)",
			"param fc.bias f32(3): uniform in [-0.5, 0.5)",
			"linear {To:invalid} fc -> f32(2, 3)",
		}},
		{"max pooling keeps its winners for training alone", nn.Net{Compute: tensor.F32},
			func(net *nn.Net, g *graph.Graph) {
				x := g.Input("x", tensor.F32, 1, 2, 8, 8)
				net.MaxPool2D("eval", x, 3, 2, 1)
				net.Training = true
				net.MaxPool2D("train", x, 2, 2, 0)
				net.GlobalAvgPool("global", x)
			}, []string{
				"max_pool2d {Window:{Stride:[2 2] Padding:[1 1] Dilation:[1 1]} Kernel:[3 3] Train:false} eval -> f32(1, 2, 4, 4)",
				"max_pool2d {Window:{Stride:[2 2] Padding:[0 0] Dilation:[1 1]} Kernel:[2 2] Train:true} train -> f32(1, 2, 4, 4)",
				"global_avg_pool {} global -> f32(1, 2)",
			}},
		{"stochastic depth is one number a sample", nn.Net{Training: true}, func(net *nn.Net, g *graph.Graph) {
			x := g.Input("x", tensor.BF16, 4, 3, 2, 2)
			net.IDs, net.Key = g.Input("ids", tensor.I64, 4), g.Input("key", tensor.U32, 2)
			x = net.StochasticDepth("none", x, 0)
			x = net.StochasticDepth("a", x, 0.25)
			net.Training = false
			net.StochasticDepth("eval", x, 0.5)
		}, []string{
			"fill {DType:bf16 Shape:(4, 1, 1, 1) Value:1} a ones -> bf16(4, 1, 1, 1)",
			"dropout {P:0.25 Stream:1} a rows -> bf16(4, 1, 1, 1)",
			"binary {Func:mul} a -> bf16(4, 3, 2, 2)",
		}},
		{"each dropout has its stream, and there is none for evaluation or probability 0", nn.Net{Training: true},
			func(net *nn.Net, g *graph.Graph) {
				x := g.Input("x", tensor.F32, 4, 3)
				net.IDs, net.Key = g.Input("ids", tensor.I64, 4), g.Input("key", tensor.U32, 2)
				x = net.Dropout("a", x, 0.5)
				x = net.Dropout("none", x, 0)
				x = net.Dropout("b", x, 0.25)
				net.Training = false
				net.Dropout("eval", x, 0.5)
			}, []string{
				"dropout {P:0.5 Stream:1} a -> f32(4, 3)",
				"dropout {P:0.25 Stream:2} b -> f32(4, 3)",
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := graph.Build(func(g *graph.Graph) {
				c.net.Graph = g
				c.layer(&c.net, g)
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(g); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestLayersOfAnF64NetAreF64(t *testing.T) {
	g, err := graph.Build(func(g *graph.Graph) {
		g.UseF64()
		net := nn.Net{Graph: g, Training: true, Compute: tensor.F64}
		x := net.Conv2D("conv", g.Input("x", tensor.F64, 2, 3, 4, 4), nn.Conv{Out: 4, Kernel: 3, Bias: true})
		x = net.BatchNorm("bn", x, nn.Norm{ReLU: true})
		net.Logits("fc", net.GlobalAvgPool("pool", x), 5)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range g.Nodes {
		for _, v := range slices.Concat(n.In, n.Out) {
			if v.DType != tensor.F64 && v.DType != tensor.Opaque {
				t.Errorf("%s: got %v, want f64", n.Name, v)
			}
		}
	}
}

func TestLayersThatDoNotFitAreErrorsNamingThem(t *testing.T) {
	image := func(g *graph.Graph) *graph.Value { return g.Input("x", tensor.F32, 2, 6, 4, 4) }
	for _, c := range []struct {
		name, node, text string
		layer            func(net *nn.Net, g *graph.Graph)
	}{
		{"kernel larger than the image", "conv", "larger than the padded input", func(net *nn.Net, g *graph.Graph) {
			net.Conv2D("conv", image(g), nn.Conv{Out: 4, Kernel: 5})
		}},
		{"groups that do not divide the channels", "conv", "groups: got 4", func(net *nn.Net, g *graph.Graph) {
			net.Conv2D("conv", image(g), nn.Conv{Out: 4, Kernel: 1, Groups: 4})
		}},
		{"more groups than channels", "conv.weight", "dimension 1: got 0", func(net *nn.Net, g *graph.Graph) {
			net.Conv2D("conv", image(g), nn.Conv{Out: 8, Kernel: 1, Groups: 8})
		}},
		{"no outputs", "conv.weight", "dimension 0: got 0", func(net *nn.Net, g *graph.Graph) {
			net.Conv2D("conv", image(g), nn.Conv{Kernel: 1})
		}},
		{"two layers of one name", "conv.weight", "two parameters", func(net *nn.Net, g *graph.Graph) {
			net.Conv2D("conv", net.Conv2D("conv", image(g), nn.Conv{Out: 6, Kernel: 1}), nn.Conv{Out: 6, Kernel: 1})
		}},
		{"residual of another shape", "bn", "residual: got shape (2, 6, 2, 2)", func(net *nn.Net, g *graph.Graph) {
			x := image(g)
			net.BatchNorm("bn", x, nn.Norm{Residual: net.MaxPool2D("pool", x, 2, 2, 0)})
		}},
		{"linear on an image", "fc", "4 dimensions", func(net *nn.Net, g *graph.Graph) {
			net.Linear("fc", image(g), 3, tensor.F32)
		}},
		{"pooling larger than the image", "pool", "larger than the padded input", func(net *nn.Net, g *graph.Graph) {
			net.MaxPool2D("pool", image(g), 7, 2, 1)
		}},
		{"dropout without sample ids for each sample", "drop", "ids: got shape (3)", func(net *nn.Net, g *graph.Graph) {
			net.Training, net.IDs, net.Key = true, g.Input("ids", tensor.I64, 3), g.Input("key", tensor.U32, 2)
			net.Dropout("drop", image(g), 0.5)
		}},
		{"dropout of everything", "drop", "probability: got 1", func(net *nn.Net, g *graph.Graph) {
			net.Training, net.IDs, net.Key = true, g.Input("ids", tensor.I64, 2), g.Input("key", tensor.U32, 2)
			net.Dropout("drop", image(g), 1)
		}},
		{"dropout without sample ids at all", "drop", "input 1: got no value", func(net *nn.Net, g *graph.Graph) {
			net.Training = true
			net.Dropout("drop", image(g), 0.5)
		}},
		{"convolution of a vector", "conv", "1 dimensions", func(net *nn.Net, g *graph.Graph) {
			net.Conv2D("conv", g.Input("v", tensor.F32, 3), nn.Conv{Out: 1, Kernel: 1})
		}},
		{"normalisation of a vector", "bn", "1 dimensions", func(net *nn.Net, g *graph.Graph) {
			net.BatchNorm("bn", g.Input("v", tensor.F32, 3), nn.Norm{})
		}},
		{"linear on a vector", "fc", "1 dimensions", func(net *nn.Net, g *graph.Graph) {
			net.Linear("fc", g.Input("v", tensor.F32, 3), 2, tensor.F32)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := graph.Build(func(g *graph.Graph) { c.layer(&nn.Net{Graph: g, Compute: tensor.F32}, g) })
			var fault *graph.BuildError
			if !errors.As(err, &fault) || fault.Node != c.node || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want a BuildError of %s with %q", err, c.node, c.text)
			}
		})
	}
}

// The expected values are those of kaiming_normal_(mode="fan_out", nonlinearity="relu") and of torch.nn.Linear.
func TestInitialSpreadFollowsTheFans(t *testing.T) {
	g, err := graph.Build(func(g *graph.Graph) {
		net := nn.Net{Graph: g, Compute: tensor.F32}
		net.Conv2D("conv", g.Input("x", tensor.F32, 1, 3, 8, 8), nn.Conv{Out: 64, Kernel: 7})
		net.Linear("fc", g.Input("y", tensor.F32, 1, 512), 10, tensor.F32)
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{math.Sqrt(2. / (64 * 49)), 1 / math.Sqrt(512), 1 / math.Sqrt(512)} {
		if got := g.Params[i].Init.B; got != want {
			t.Errorf("%s: got %v, want a spread of %g", g.Params[i].Name, g.Params[i].Init, want)
		}
	}
}
