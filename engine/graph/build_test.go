package graph_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

var unit = graph.Window{Stride: [2]int{1, 1}, Dilation: [2]int{1, 1}}

// images declares the input (2, 3, 4, 4) of the graphs in the tables.
func images(g *graph.Graph) *graph.Value { return g.Input("images", tensor.F32, 2, 3, 4, 4) }

func TestFaultsWhileBuildingNameTheNode(t *testing.T) {
	for _, c := range []struct {
		name, node, text string
		build            func(g *graph.Graph)
	}{
		{"image too small for a convolution", "conv",
			"kernel [5 5] with dilation [1 1] is larger than the padded input (2, 3, 4, 4)", func(g *graph.Graph) {
				g.Conv2D("conv", images(g), g.Param("w", graph.Const(0), 1, 3, 5, 5), nil, unit, 1)
			}},
		{"image too small for a dilated convolution", "conv", "dilation [3 3]", func(g *graph.Graph) {
			win := unit
			win.Dilation = [2]int{3, 3}
			g.Conv2D("conv", images(g), g.Param("w", graph.Const(0), 1, 3, 3, 3), nil, win, 1)
		}},
		{"weights of other channels", "conv", "weight: got shape (1, 4, 3, 3), want (1, 3, 3, 3)",
			func(g *graph.Graph) {
				g.Conv2D("conv", images(g), g.Param("w", graph.Const(0), 1, 4, 3, 3), nil, unit, 1)
			}},
		{"bias of other channels", "conv", "bias: got shape (2), want (1)", func(g *graph.Graph) {
			g.Conv2D("conv", images(g), g.Param("w", graph.Const(0), 1, 3, 3, 3), g.Param("b", graph.Const(0), 2), unit,
				1)
		}},
		{"stride 0", "conv", "want a padding of at least 0", func(g *graph.Graph) {
			g.Conv2D("conv", images(g), g.Param("w", graph.Const(0), 1, 3, 3, 3), nil,
				graph.Window{Dilation: [2]int{1, 1}}, 1)
		}},
		{"matrix product of unlike widths", "fc", "weight: got shape (3, 7), want (3, 5)", func(g *graph.Graph) {
			g.Linear("fc", g.Input("x", tensor.F32, 2, 5), g.Param("w", graph.Const(0), 3, 7), nil, tensor.Invalid)
		}},
		{"scale of other channels", "bn", "gamma: got shape (4), want (3)", func(g *graph.Graph) {
			g.BatchNorm("bn", images(g), graph.BatchNorm{
				Gamma: g.Param("gamma", graph.Const(1), 4), Beta: g.Param("beta", graph.Const(0), 3),
				RunningMean: g.State("mean", graph.Const(0), 3), RunningVar: g.State("var", graph.Const(1), 3)})
		}},
		{"running statistics of other channels", "bn running", "running_var: got shape (4), want (3)",
			func(g *graph.Graph) {
				g.BatchNorm("bn", images(g), graph.BatchNorm{
					Gamma: g.Param("gamma", graph.Const(1), 3), Beta: g.Param("beta", graph.Const(0), 3),
					RunningMean: g.State("mean", graph.Const(0), 3), RunningVar: g.State("var", graph.Const(1), 4)})
			}},
		{"pooling padded by more than half a window", "pool", "want at most half", func(g *graph.Graph) {
			win := unit
			win.Padding = [2]int{1, 2}
			g.MaxPool2D("pool", images(g), [2]int{3, 3}, win, true)
		}},
		{"sum of unlike shapes", "sum", "cannot be broadcast to (2, 3, 4, 4)", func(g *graph.Graph) {
			x := images(g)
			g.Binary("sum", device.Add, x, g.Slice("part", x, 1, 0, 2))
		}},
		{"sum of unlike types", "sum", "element type bf16", func(g *graph.Graph) {
			x := images(g)
			g.Binary("sum", device.Add, x, g.Cast("cast", x, tensor.BF16))
		}},
		{"reshape to another count", "flat", "want (2, 47) of 94", func(g *graph.Graph) {
			g.Reshape("flat", images(g), 2, 47)
		}},
		{"transpose by no permutation", "turn", "permutation", func(g *graph.Graph) {
			g.Transpose("turn", images(g), 0, 1, 1, 3)
		}},
		{"concat of unlike heights", "join", "input 1: got shape", func(g *graph.Graph) {
			x := images(g)
			g.Concat("join", 1, x, g.Slice("part", x, 2, 0, 3))
		}},
		{"slice past the end", "part", "not inside", func(g *graph.Graph) { g.Slice("part", images(g), 1, 2, 2) }},
		{"reduction over a dimension that is not there", "mean", "ascending dimensions", func(g *graph.Graph) {
			g.Reduce("mean", device.Mean, images(g), 4)
		}},
		{"dropout with a key of another size", "drop", "key: got shape (3), want (2)", func(g *graph.Graph) {
			g.Dropout("drop", images(g), g.Input("ids", tensor.I64, 2), g.Input("key", tensor.U32, 3), 0.5, 1)
		}},
		{"labels for other samples", "loss", "labels: got shape (3), want (2)", func(g *graph.Graph) {
			g.SoftmaxCrossEntropy("loss", g.Input("logits", tensor.F32, 2, 5), g.Input("labels", tensor.I32, 3), 0)
		}},
		{"label smoothing of 1", "loss", "label smoothing: got 1", func(g *graph.Graph) {
			g.SoftmaxCrossEntropy("loss", g.Input("logits", tensor.F32, 2, 5), g.Input("labels", tensor.I32, 2), 1)
		}},
		{"normalisation of images of other channels", "normalize", "got 1 means and 1 deviations, want 3",
			func(g *graph.Graph) {
				g.ImageNormalize("normalize", g.Input("bytes", tensor.U8, 2, 4, 4, 3), []float32{0}, []float32{1},
					tensor.F32)
			}},
		{"a value that is missing", "relu", "input 0: got no value", func(g *graph.Graph) {
			g.Unary("relu", graph.ReLU, nil)
		}},

		{"two parameters of one name", "w", "two parameters or states have this name", func(g *graph.Graph) {
			g.Param("w", graph.Const(0), 3)
			g.Param("w", graph.Const(0), 4)
		}},
		{"a state named like a parameter", "w", "two parameters or states have this name", func(g *graph.Graph) {
			g.Param("w", graph.Const(0), 3)
			g.State("w", graph.Const(0), 3)
		}},
		{"two inputs of one name", "x", "two inputs have this name", func(g *graph.Graph) {
			g.Input("x", tensor.F32, 3)
			g.Input("x", tensor.F32, 3)
		}},
		{"two outputs of one name", "y", "two outputs have this name", func(g *graph.Graph) {
			x := images(g)
			g.Output("y", x)
			g.Output("y", g.Unary("relu", graph.ReLU, x))
		}},
		{"a parameter as an output", "y", "got w f32(3)", func(g *graph.Graph) {
			g.Output("y", g.Param("w", graph.Const(0), 3))
		}},
		{"a state as an output", "y", "got s f32(3)", func(g *graph.Graph) {
			g.Output("y", g.State("s", graph.Const(0), 3))
		}},
		{"nothing as an output", "y", "got no value", func(g *graph.Graph) { g.Output("y", nil) }},
		{"a parameter without elements", "w", "dimension 1: got 0", func(g *graph.Graph) {
			g.Param("w", graph.Const(0), 3, 0)
		}},
		{"an input of too many dimensions", "x", "want at most 6", func(g *graph.Graph) {
			g.Input("x", tensor.F32, 1, 1, 1, 1, 1, 1, 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := graph.Build(c.build)
			var fault *graph.BuildError
			if !errors.As(err, &fault) || fault.Node != c.node || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want a BuildError of %s with %q", err, c.node, c.text)
			}
			if g != nil {
				t.Error("got a graph together with the error")
			}
		})
	}
}

func TestOtherPanicsPassThrough(t *testing.T) {
	defer func() {
		if r := recover(); r != "a programmer's mistake" {
			t.Errorf("got %v, want the panic itself", r)
		}
	}()
	graph.Build(func(*graph.Graph) { panic("a programmer's mistake") })
}

func TestBuildErrorUnwraps(t *testing.T) {
	cause := errors.New("cause")
	if err := error(&graph.BuildError{Node: "conv1", Err: cause}); !errors.Is(err, cause) ||
		err.Error() != "graph: conv1: cause" {
		t.Errorf("got %v, want the node's name and the cause", err)
	}
}

func TestParametersKeepTheirTypeAndCastsAreShared(t *testing.T) {
	g, err := graph.Build(func(g *graph.Graph) {
		w := g.Param("w", graph.Const(1), 5, 5)
		x := g.Input("x", tensor.BF16, 2, 5)
		y := g.Linear("a", g.Linear("b", x, w, nil, tensor.Invalid), w, nil, tensor.Invalid)
		g.Linear("c", g.Cast("cast", y, tensor.F32), w, nil, tensor.Invalid)
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range g.Nodes {
		got = append(got, n.Name)
	}
	if want := "w as bf16, b, a, cast, c"; strings.Join(got, ", ") != want {
		t.Errorf("got nodes %s, want %s", strings.Join(got, ", "), want)
	}
	if g.Params[0].DType != tensor.F32 || g.ParamCount() != 25 {
		t.Errorf("got %v and a count of %d, want f32 and 25", g.Params[0], g.ParamCount())
	}
}

func TestArithmeticIsCounted(t *testing.T) {
	for _, c := range []struct {
		name     string
		forward  int64 // FLOPs: a multiply-add counts as 2, and taps in the padding also count
		training int64
		build    func(g *graph.Graph, x *graph.Value) *graph.Value // returns the logits
	}{
		// The first layer needs no gradient of its source. Training it therefore takes twice the FLOPs of its forward
		// pass. Any other layer takes three times the FLOPs of its forward pass.
		{"linear", 2 * 2 * 48 * 5, 2 * (2 * 2 * 48 * 5), func(g *graph.Graph, x *graph.Value) *graph.Value {
			return g.Linear("fc", g.Reshape("flat", x, 2, 48), g.Param("w", graph.Const(0), 5, 48),
				g.Param("b", graph.Const(0), 5), tensor.Invalid)
		}},
		{"convolution of stride 2 in 3 groups, then linear", 2*2*6*2*2*9 + 2*2*6*5, 2*(2*2*6*2*2*9) + 3*(2*2*6*5),
			func(g *graph.Graph, x *graph.Value) *graph.Value {
				win := graph.Window{Stride: [2]int{2, 2}, Padding: [2]int{1, 1}, Dilation: [2]int{1, 1}}
				// the output is (2, 6, 2, 2), with 9 taps per element
				y := g.Conv2D("conv", x, g.Param("w", graph.Const(0), 6, 1, 3, 3), nil, win, 3)
				return g.Linear("fc", g.GlobalAvgPool("pool", y), g.Param("fc", graph.Const(0), 5, 6), nil,
					tensor.Invalid)
			}},
		{"element-wise ops are free", 0, 0, func(g *graph.Graph, x *graph.Value) *graph.Value {
			return g.GlobalAvgPool("pool", g.Binary("scaled", device.Mul, x, g.Param("w", graph.Const(0), 3, 1, 1)))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, training := range []bool{false, true} {
				want := c.forward
				g, err := graph.Build(func(g *graph.Graph) {
					loss, _ := g.SoftmaxCrossEntropy("loss", c.build(g, images(g)), g.Input("labels", tensor.I32, 2), 0)
					if training {
						g.Differentiate(loss, g.Input("scale", tensor.F32, 1))
						want = c.training
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				if got := g.FLOPs(); got != want {
					t.Errorf("training %v: got %d FLOP, want %d", training, got, want)
				}
			}
		})
	}
}

func TestInitialDistributionsAreReadable(t *testing.T) {
	for want, init := range map[string]graph.Init{
		"constant 0.5":                graph.Const(0.5),
		"normal mean 0 deviation 0.1": graph.Normal(0.1),
		"uniform in [-2, 2)":          graph.Uniform(2),
		"3 given values":              graph.Values([]float64{1, 0, 4}),
	} {
		if got := init.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestExchangesInfer(t *testing.T) {
	f32 := device.Spec(tensor.F32, 1, 4)
	for _, c := range []struct {
		name string
		op   device.Op
		in   []device.TensorSpec
		want string // shapes of the outputs, or a part of the error
	}{
		{"a gather has a row for each rank", graph.AllGather{Rank: 1, Ranks: 3}, []device.TensorSpec{f32, f32},
			"[f32(3, 2, 4)]"},
		{"a sum is what it sums", graph.AllReduce{}, []device.TensorSpec{f32, f32}, "[f32(1, 4) f32(1, 4)]"},
		{"a rank that is none", graph.AllGather{Rank: 3, Ranks: 3}, []device.TensorSpec{f32},
			"all_gather: rank: got 3, want one of 3"},
		{"nothing to exchange", graph.AllReduce{}, nil, "all_reduce: got no values"},
		{"values of other shape", graph.AllReduce{}, []device.TensorSpec{f32, device.Spec(tensor.F32, 4)},
			"all_reduce: value 1: got f32(4), want real numbers like value 0, f32(1, 4)"},
		{"values of other type", graph.AllGather{Ranks: 1}, []device.TensorSpec{f32, device.Spec(tensor.F64, 1, 4)},
			"value 1: got f64(1, 4)"},
		{"values that are no real numbers", graph.AllReduce{}, []device.TensorSpec{device.Spec(tensor.I32, 1)},
			"value 0: got i32(1), want real numbers"},
	} {
		out, err := c.op.Infer(c.in)
		if got := fmt.Sprint(out); err == nil && got != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v and %v, want %s", c.name, out, err, c.want)
		}
	}
}

func TestGroupsAndExchangesOfStatisticsExcludeEachOther(t *testing.T) {
	_, err := graph.Build(func(g *graph.Graph) {
		g.BatchNorm("bn", images(g), graph.BatchNorm{
			Group: 1, Sync: &graph.Ranks{Count: 2, Samples: g.Input("samples", tensor.I32, 2), Total: 4},
			Gamma: g.Param("gamma", graph.Const(1), 3), Beta: g.Param("beta", graph.Const(0), 3),
			RunningMean: g.State("mean", graph.Const(0), 3), RunningVar: g.State("var", graph.Const(1), 3)})
	})
	if err == nil ||
		!strings.Contains(err.Error(),
			"bn: got groups of 1 samples, want no groups, because ranks exchange statistics") {
		t.Errorf("got %v", err)
	}
}

// The backward pass of a normalisation sums over the samples of all ranks. Only gradients of parameters are sums over
// the samples of this rank.
func TestStatisticsOfAllRanksAreExchangedTwice(t *testing.T) {
	for _, sync := range []bool{false, true} {
		g, err := graph.Build(func(g *graph.Graph) {
			bn := graph.BatchNorm{Gamma: g.Param("gamma", graph.Const(1), 3), Beta: g.Param("beta", graph.Const(0), 3),
				RunningMean: g.State("mean", graph.Const(0), 3), RunningVar: g.State("var", graph.Const(1), 3)}
			if sync {
				bn.Sync = &graph.Ranks{Rank: 1, Count: 2, Samples: g.Input("samples", tensor.I32, 2), Total: 7}
			}
			x := g.Conv2D("conv", images(g), g.Param("w", graph.Const(0), 3, 3, 1, 1), nil, unit, 1)
			loss, _ := g.SoftmaxCrossEntropy("loss", g.GlobalAvgPool("mean", g.BatchNorm("bn", x, bn)),
				g.Input("labels", tensor.I32, 2), 0)
			g.Differentiate(loss, g.Input("scale", tensor.F32, 1))
		})
		if err != nil {
			t.Fatal(err)
		}
		var exchanges []string
		for _, n := range g.Nodes {
			switch op := n.Op.(type) {
			case graph.AllGather, graph.AllReduce:
				exchanges = append(exchanges, n.Name)
			case device.BatchNormRunning:
				if want := map[bool]int64{false: 2 * 16, true: 7 * 16}[sync]; op.Counts[0] != want {
					t.Errorf("sync %t: running statistics are of %d elements, want %d", sync, op.Counts[0], want)
				}
			case device.BatchNormDiffApply:
				if want := map[bool]int64{false: 0, true: 7 * 16}[sync]; op.Count != want {
					t.Errorf("sync %t: the gradient of x counts %d elements, want %d", sync, op.Count, want)
				}
			}
		}
		if want := map[bool][]string{true: {"bn gather", "bn diff sums"}}[sync]; !slices.Equal(exchanges, want) {
			t.Errorf("sync %t: got exchanges %q, want %q", sync, exchanges, want)
		}
	}
}
