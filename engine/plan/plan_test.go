package plan

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/golden"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// twoConvs builds a network with all cases that a plan distinguishes. One convolution needs no gradient of its source,
// and one needs it. There are also a normalisation between them, and a pooling with saved state.
func twoConvs(net *nn.Net, x *graph.Value, classes int) *graph.Value {
	x = net.Conv2D("conv1", x, nn.Conv{Out: 4, Kernel: 3, Padding: 1})
	x = net.BatchNorm("bn1", x, nn.Norm{ReLU: true})
	x = net.Conv2D("conv2", x, nn.Conv{Out: 6, Kernel: 3, Padding: 1, Bias: true})
	x = net.MaxPool2D("pool", x, 2, 2, 0)
	return net.Logits("fc", net.GlobalAvgPool("mean", x), classes)
}

// tasteOfConvs is the layout preference of a device that requires channels-last images and reversed weights. The device
// writes weight gradients reversed and padded.
func tasteOfConvs(op device.Op, out bool, i int, have device.Layout) device.Layout {
	switch op.(type) {
	case device.Conv2D:
		if !out && i == 1 {
			return reversed
		}
		if !out && i == 2 {
			return device.Plain
		}
		return channelsLast
	case device.Conv2DDiffSrc:
		if !out && i == 1 {
			return reversed
		}
		return channelsLast
	case device.Conv2DDiffWeights:
		if out && i == 0 {
			return reversedPadded
		}
		if out {
			return device.Plain
		}
		return channelsLast
	case device.MaxPool2D, device.MaxPool2DDiff, device.GlobalAvgPool, device.GlobalAvgPoolDiff, device.Linear,
		device.LinearDiffSrc, device.LinearDiffWeights:
		return device.Plain
	case device.BatchNormApply, device.BatchNormDiffApply:
		if out {
			return channelsLast
		}
	}
	return have
}

func openParticular(taste func(device.Op, bool, int, device.Layout) device.Layout) *particular {
	d := newParticular()
	d.taste = taste
	return d
}

func TestPlanIsReadable(t *testing.T) {
	for name, dev := range map[string]device.Device{
		"reference": reference.New(), "layouts": openParticular(tasteOfConvs)} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, dev, classifierGraph(t, twoConvs, 2, 4, tensor.F32, true))
			defer r.close()
			var got bytes.Buffer
			n, err := r.plan.WriteTo(&got)
			if err != nil || n != int64(got.Len()) {
				t.Errorf("got %d and %v, want the %d bytes written", n, err, got.Len())
			}
			file := "testdata/plan_" + name + ".txt"
			golden.Check(t, file, got.String())
		})
	}
}

// A gradient is in the flat buffer, at the offset of its parameter. An output is in memory that the host reads. A value
// that is both must be copied.
func TestGradientsMayBeOutputs(t *testing.T) {
	for name, dev := range map[string]device.Device{
		"reference": reference.New(), "layouts": openParticular(tasteOfConvs)} {
		t.Run(name, func(t *testing.T) {
			g := classifierGraph(t, twoConvs, 2, 4, tensor.F32, true)
			for _, gr := range g.Gradients {
				g.Output("gradient of "+gr.Param.Name, gr.Value)
			}
			r := newRig(t, dev, g)
			defer r.close()
			r.batch()
			r.run(true)
			for _, gr := range g.Gradients {
				got, want := r.output("gradient of "+gr.Param.Name), r.gradient(gr.Param.Name)
				if !slices.Equal(got, want) || slices.Max(want) == 0 {
					t.Errorf("%s: got output %v, want the gradient %v", gr.Param.Name, got, want)
				}
			}
		})
	}
}

// full is a writer that fails after n bytes.
type full struct{ n int }

func (w *full) Write(b []byte) (int, error) {
	if len(b) > w.n {
		return 0, errors.New("full")
	}
	w.n -= len(b)
	return len(b), nil
}

func TestWriterThatFailsIsReported(t *testing.T) {
	r := newRig(t, reference.New(), classifierGraph(t, twoConvs, 2, 4, tensor.F32, true))
	defer r.close()
	var all bytes.Buffer
	if _, err := r.plan.WriteTo(&all); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, all.Len() / 2, all.Len() - 1} { // the last write is the line with the summary
		if _, err := r.plan.WriteTo(&full{n}); err == nil {
			t.Errorf("a writer that takes %d of %d bytes: no error", n, all.Len())
		}
	}
}

func TestInputsAndOutputsAreFoundByName(t *testing.T) {
	r := newRig(t, reference.New(), classifierGraph(t, small, 2, 8, tensor.F32, true))
	defer r.close()
	if got, want := fmt.Sprint(r.plan.InputNames()), "[ids key images labels scale]"; got != want {
		t.Errorf("inputs: got %s, want %s", got, want)
	}
	at, spec, err := r.plan.Output("position")
	if err != nil || at.Bytes != 8 || !spec.Same(device.Spec(tensor.I32, 2)) {
		t.Errorf("position: got %d bytes of %v, %v, want i32(2)", at.Bytes, spec, err)
	}
	if _, _, err := r.plan.Input("loss"); err == nil || !strings.Contains(err.Error(), `no input "loss"`) {
		t.Errorf("got %v, want an error about input loss", err)
	}
	if _, _, err := r.plan.Output("images"); err == nil || !strings.Contains(err.Error(), `no output "images"`) {
		t.Errorf("got %v, want an error about output images", err)
	}
}

func TestInputsMayBeOutputsAndNeedNoReader(t *testing.T) {
	g, err := graph.Build(func(g *graph.Graph) {
		x := g.Input("x", tensor.F32, 3)
		g.Input("unread", tensor.F32, 1000)
		g.Output("same", x)
		g.Output("half", g.Reshape("r", g.Unary("neg", device.Neg, x), 3, 1))
	})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, reference.New(), g)
	defer r.close()
	r.input("x", []float64{1, 2, 3})
	r.input("unread", make([]float64, 1000))
	r.run(true)
	if a, b := r.output("same"), r.output("half"); !slices.Equal(a, []float64{1, 2, 3}) ||
		!slices.Equal(b, []float64{-1, -2, -3}) {
		t.Errorf("got %v and %v, want x and -x", a, b)
	}
	if want := int64(64 + 4032 + 64); r.plan.ArenaBytes() != want {
		t.Errorf("arena: got %d bytes, want %d", r.plan.ArenaBytes(), want)
	}
}

func TestCopyOfAParameterIsNoOutput(t *testing.T) {
	g, err := graph.Build(func(g *graph.Graph) {
		g.Output("w", g.Cast("low", g.Param("weight", graph.Const(1), 3), tensor.BF16))
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Compile(NewCache(reference.New()), g, nil); err == nil ||
		!strings.Contains(err.Error(), "output w cannot be a copy of parameter weight") {
		t.Errorf("got %v, want an error naming output and parameter", err)
	}
}

func TestEvaluationHasNoBackwardPass(t *testing.T) {
	r := newRig(t, reference.New(), classifierGraph(t, small, 2, 8, tensor.F32, false))
	defer r.close()
	r.batch()
	r.run(true) // the backward pass has no launches
	for _, l := range r.plan.Launches() {
		if l.Phase == "backward" {
			t.Errorf("%s in the backward pass", l.Name)
		}
	}
}

func TestLaunchesCountTheArithmeticOfTheGraphAndCanBeTimed(t *testing.T) {
	g := classifierGraph(t, twoConvs, 2, 4, tensor.BF16, true)
	r := newRig(t, openParticular(tasteOfConvs), g)
	defer r.close()
	r.batch()
	r.run(true)
	want := r.outputBytes("loss")
	var flops int64
	phases := ""
	for _, l := range r.plan.Launches() {
		flops += l.FLOPs
		if !strings.HasSuffix(phases, l.Phase) {
			phases += " " + l.Phase
		}
		if l.Bytes <= 0 || l.Name == "" {
			t.Errorf("%+v: want a name and the bytes that it moves", l)
		}
	}
	if flops != g.FLOPs() || phases != " prepare forward backward" {
		t.Errorf("got %d FLOP in%s, want %d in prepare forward backward", flops, phases, g.FLOPs())
	}
	for name, b := range r.inputs {
		at, _, _ := r.plan.Input(name)
		copy(at.Host(), b)
	}
	elapsed := make([]time.Duration, len(r.plan.Launches()))
	if err := r.plan.RunTimed(r.stream, elapsed); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(elapsed, 0) || !bytes.Equal(r.outputBytes("loss"), want) {
		t.Errorf("got %v, want a time for each launch and the same loss", elapsed)
	}
}

func TestRunningAllocatesNoDeviceMemory(t *testing.T) {
	r := newRig(t, reference.New(), classifierGraph(t, small, 2, 8, tensor.F32, true))
	defer r.close()
	_, before := r.dev.Memory()
	r.batch()
	r.run(true)
	if _, after := r.dev.Memory(); after != before {
		t.Errorf("peak of device memory: got %d bytes after a step, want the %d before it", after, before)
	}
}

func TestParametersLieAlikeForEveryBatchSize(t *testing.T) {
	for name, model := range map[string]models.Classifier{"simple_cnn": small, "resnet": tinyBottleneck,
		"two convolutions": twoConvs} {
		for _, dev := range []device.Device{reference.New(), openParticular(tasteOfConvs), openParticular(moody(1)),
			openParticular(moody(2))} {
			cache := NewCache(dev)
			var first *Params
			for _, n := range []int{4, 1, 7} {
				p, err := Compile(cache, classifierGraph(t, model, n, 8, tensor.BF16, true), nil)
				if err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = p.Params()
				} else if !reflect.DeepEqual(p.Params(), first) {
					t.Errorf("%s: parameters for %d samples: got %+v, want %+v", name, n, p.Params(), first)
				}
				fixed, err := Compile(cache, classifierGraph(t, model, n, 8, tensor.BF16, true), first)
				if err != nil || fixed.Params() != first {
					t.Errorf("%s: %d samples: got %v, want the layout that was given", name, n, err)
				}
			}
			cache.Close()
		}
	}
}

func TestPlanOfAnotherModelIsRefused(t *testing.T) {
	base := func(g *graph.Graph) {
		x := g.Input("x", tensor.F32, 2, 3)
		if g.ParamType() == tensor.F64 {
			x = g.Cast("wide", x, tensor.F64)
		}
		g.Output("y", g.Linear("fc", x, g.Param("w", graph.Const(0), 4, 3), nil, tensor.Invalid))
		g.State("s", graph.Const(0), 4)
	}
	build := func(f func(*graph.Graph)) *graph.Graph {
		g, err := graph.Build(f)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	cache := NewCache(reference.New())
	defer cache.Close()
	p, err := Compile(cache, build(base), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		build      func(*graph.Graph)
	}{
		{"a parameter more", "graph has 2 parameters and 1 states, want the 1 and 1", func(g *graph.Graph) {
			base(g)
			g.Param("b", graph.Const(0), 4)
		}},
		{"a state more", "graph has 1 parameters and 2 states", func(g *graph.Graph) {
			base(g)
			g.State("t", graph.Const(0), 4)
		}},
		{"another name", "parameter v, which the model does not have", func(g *graph.Graph) {
			g.Param("v", graph.Const(0), 4, 3)
			g.State("s", graph.Const(0), 4)
		}},
		{"another shape", "parameter w: got shape (4, 5), want the model's (4, 3)", func(g *graph.Graph) {
			g.Param("w", graph.Const(0), 4, 5)
			g.State("s", graph.Const(0), 4)
		}},
		{"another state", "state 0: got t (4), want s (4)", func(g *graph.Graph) {
			g.Param("w", graph.Const(0), 4, 3)
			g.State("t", graph.Const(0), 4)
		}},
		{"a state of another shape", "state 0: got s (5), want s (4)", func(g *graph.Graph) {
			g.Param("w", graph.Const(0), 4, 3)
			g.State("s", graph.Const(0), 5)
		}},
		{"another element type", "parameters of type f64, want the model's f32", func(g *graph.Graph) {
			g.UseF64()
			base(g)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Compile(cache, build(c.build), p.Params()); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := Compile(cache, build(base), p.Params()); err != nil {
		t.Errorf("the same model: %v", err)
	}
}
