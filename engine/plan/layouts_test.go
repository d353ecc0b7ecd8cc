package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// moved returns the launches that only move tensors, each as "phase name".
func (r *rig) moved() []string {
	var names []string
	for _, l := range r.plan.Launches() {
		if _, ok := l.Op.(device.Reorder); ok {
			names = append(names, l.Phase+" "+l.Name)
		}
	}
	return names
}

// residualChain builds a chain of convolutions, normalisations and a residual. Every op in it can keep the layouts that
// it prefers.
func residualChain(net *nn.Net, x *graph.Value, classes int) *graph.Value {
	x = net.Conv2D("conv1", x, nn.Conv{Out: 3, Kernel: 3, Padding: 1})
	x = net.BatchNorm("bn1", x, nn.Norm{ReLU: true})
	y := net.Conv2D("conv2", x, nn.Conv{Out: 3, Kernel: 3, Padding: 1})
	x = net.BatchNorm("bn2", y, nn.Norm{ReLU: true, Residual: x})
	return net.Logits("fc", net.GlobalAvgPool("mean", x), classes)
}

// imagesLast is a layout preference. Images are channels-last, and every other operand keeps its layout.
func imagesLast(op device.Op, out bool, i int, have device.Layout) device.Layout {
	switch op.(type) {
	case device.Conv2D, device.Conv2DDiffSrc:
		if !out && i == 1 {
			return device.Plain
		}
		return channelsLast
	case device.Conv2DDiffWeights:
		if !out {
			return channelsLast
		}
	case device.BatchNormApply, device.BatchNormDiffApply:
		if out && i == 0 {
			return channelsLast
		}
	case device.BatchNormDiffReduce:
		if out && i == 2 {
			return channelsLast
		}
	case device.GlobalAvgPoolDiff:
		if out {
			return channelsLast
		}
	}
	return have
}

func TestReordersAreOnlyWhereTwoKernelsDisagree(t *testing.T) {
	for _, c := range []struct {
		name    string
		model   models.Classifier
		taste   func(device.Op, bool, int, device.Layout) device.Layout
		compute tensor.DType
		refuse  func(op device.Op, in, out []device.TensorSpec) bool
		want    []string
	}{
		{name: "a device without wishes", model: residualChain, taste: newParticular().taste, compute: tensor.F32},
		{name: "layouts are carried from kernel to kernel, and bytes become images where they are wanted",
			model: residualChain, taste: imagesLast, compute: tensor.F32},
		{name: "one copy of a weight serves forward and backward", model: twoConvs, taste: tasteOfConvs,
			compute: tensor.F32,
			want:    []string{"prepare prepare conv1.weight", "prepare prepare conv2.weight", "forward reorder conv2"}},
		{name: "bf16 copies are made when parameters change, and f32 logits have bf16 gradients", model: residualChain,
			taste: imagesLast, compute: tensor.BF16,
			want: []string{"prepare prepare conv1.weight", "prepare prepare conv2.weight", "prepare prepare fc.weight",
				"backward fc diff cast"}},
		{name: "backward wants the weight otherwise than forward", model: residualChain, compute: tensor.F32,
			taste: func(op device.Op, out bool, i int, have device.Layout) device.Layout {
				if _, ok := op.(device.Conv2DDiffSrc); ok && !out && i == 1 {
					return reversed
				}
				return imagesLast(op, out, i, have)
			},
			want: []string{"prepare prepare conv2.weight"}},
		{name: "gradients of weights that the kernel cannot write plain", model: residualChain, compute: tensor.F32,
			taste: func(op device.Op, out bool, i int, have device.Layout) device.Layout {
				if _, ok := op.(device.Conv2DDiffWeights); ok && out {
					return reversedPadded // the canonical layout, so the forward pass needs copies
				}
				return imagesLast(op, out, i, have)
			},
			want: []string{"prepare prepare conv1.weight", "prepare prepare conv2.weight"}},
		{name: "a producer that cannot write the layout wanted", model: residualChain, taste: imagesLast,
			compute: tensor.F32,
			refuse: func(op device.Op, _, out []device.TensorSpec) bool {
				_, ok := op.(device.ImageNormalize)
				return ok && out[0].Layout >= device.FirstPrivate
			},
			want: []string{"forward reorder normalize"}}, // the forward pass and the weight gradient use one reorder
		{name: "a gradient that cannot lie as its value", model: residualChain, compute: tensor.F32,
			taste: func(op device.Op, out bool, i int, have device.Layout) device.Layout {
				if _, ok := op.(device.Conv2DDiffSrc); ok && out {
					return reversed // only if the planner leaves the choice
				}
				return imagesLast(op, out, i, have)
			},
			refuse: func(op device.Op, _, out []device.TensorSpec) bool {
				_, ok := op.(device.Conv2DDiffSrc)
				return ok && out[0].Layout == channelsLast
			},
			want: nil}, // the gradient of BatchNorm accepts the tensor in its present layout
	} {
		t.Run(c.name, func(t *testing.T) {
			d := openParticular(c.taste)
			if c.refuse != nil {
				d.refuse = c.refuse
			}
			r := newRig(t, d, classifierGraph(t, c.model, 2, 4, c.compute, true))
			defer r.close()
			r.batch()
			r.run(true)
			plain := newRig(t, reference.New(), classifierGraph(t, c.model, 2, 4, c.compute, true))
			defer plain.close()
			plain.batch()
			plain.run(true)
			for _, p := range plain.state.Params.Params {
				if got, want := r.gradient(p.Name), plain.gradient(p.Name); !slices.Equal(got, want) {
					t.Errorf("gradient of %s: got %v, want %v", p.Name, got, want)
				}
			}
			if got := r.moved(); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// If no later launch reads an operand, a kernel must overwrite it, provided that the device allows this.
func TestSharingInPlaceSavesMemoryAndChangesNothing(t *testing.T) {
	arenas := map[bool]int64{}
	var losses []float64
	for _, inPlace := range []bool{false, true} {
		d := openParticular(imagesLast)
		d.inPlace = inPlace
		r := newRig(t, d, classifierGraph(t, tinyBottleneck, 3, 6, tensor.F32, true))
		r.batch()
		r.run(true)
		losses = append(losses, r.loss(), r.gradient("conv1.weight")[7])
		arenas[inPlace] = r.plan.ArenaBytes()
		r.close()
	}
	if losses[0] != losses[2] || losses[1] != losses[3] {
		t.Errorf("loss and a gradient: got %v in place, want %v", losses[2:], losses[:2])
	}
	if arenas[true] >= arenas[false] {
		t.Errorf("arena: got %d bytes in place, want less than %d", arenas[true], arenas[false])
	}
}

// sharing is a kernel. It allows certain pairs of an output and an input to share memory.
type sharing struct {
	device.Kernel
	pairs []device.Alias
}

func (k sharing) InPlace() []device.Alias { return k.pairs }
func (k sharing) Workspace() int64        { return 0 }

func TestOneInputServesOneOutputInPlace(t *testing.T) {
	x := &version{mem: &storage{bytes: 64}}
	a, b := &version{mem: &storage{bytes: 64}}, &version{mem: &storage{bytes: 64}} // no launch reads a
	first := &launch{kernel: sharing{}, out: []*version{x}}
	second := &launch{kernel: sharing{pairs: []device.Alias{{Out: 0, In: 0}, {Out: 1, In: 0}}}, in: []*version{x},
		out: []*version{a, b}}
	third := &launch{kernel: sharing{}, in: []*version{b}}
	all := []*launch{first, second, third}
	c := &compiler{g: &graph.Graph{}}
	c.lifetimes(all)
	c.shareInPlace(all)
	if a.mem.root() == b.mem.root() {
		t.Error("both outputs of a launch lie where its input was")
	}
	if a.mem.root() != x.mem {
		t.Error("the first output did not take over the input's memory")
	}
}

// b is a reshaped view of a, with the same number of elements, and Add broadcasts it to the shape of a. The kernel must
// not overwrite a, because it also reads this memory as b.
func TestOperandReadTwiceIsNotOverwritten(t *testing.T) {
	g, err := graph.Build(func(g *graph.Graph) {
		a := g.Unary("a", device.Exp, g.Input("x", tensor.F32, 1, 3))
		g.Output("y", g.Binary("double", graph.Add, a, g.Reshape("b", a, 3)))
		g.Output("z", g.Unary("unrelated", device.Neg, g.Binary("sum", graph.Add, a, g.Reshape("c", a, 3))))
	})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, reference.New(), g)
	defer r.close()
	r.input("x", []float64{0, 0, 0})
	r.run(false)
	if got := fmt.Sprint(r.output("y"), r.output("z")); got != "[2 2 2] [-2 -2 -2]" {
		t.Errorf("got %s, want [2 2 2] [-2 -2 -2]", got)
	}
}

func TestEvaluationUsesTheLayoutsOfTraining(t *testing.T) {
	r := newRig(t, openParticular(tasteOfConvs), classifierGraph(t, twoConvs, 2, 4, tensor.F32, true))
	defer r.close()
	eval := r.compile(classifierGraph(t, twoConvs, 5, 4, tensor.F32, false))
	defer eval.release()
	if eval.plan.Params() != r.plan.Params() {
		t.Error("got another layout of parameters, want the one given")
	}
	if got, want := strings.Join(eval.moved(), ", "),
		"prepare prepare conv1.weight, prepare prepare conv2.weight, forward reorder conv2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Weight gradients must have the layout of the parameters, even if the device would choose another layout for another
// batch size.
func TestWeightGradientsKeepTheLayoutOfTheFirstPlan(t *testing.T) {
	d := openParticular(tasteOfConvs)
	r := newRig(t, d, classifierGraph(t, twoConvs, 2, 4, tensor.F32, true))
	defer r.close()
	d.taste = func(op device.Op, out bool, i int, have device.Layout) device.Layout {
		if _, ok := op.(device.Conv2DDiffWeights); ok && out {
			return channelsLast
		}
		return tasteOfConvs(op, out, i, have)
	}
	second := r.compile(classifierGraph(t, twoConvs, 5, 4, tensor.F32, true))
	defer second.release()
	if got, want := second.moved(), r.moved(); !slices.Equal(got, want) {
		t.Errorf("got reorders %q, want those of the first plan, %q", got, want)
	}
}

// If a model is only evaluated, no gradients determine the layouts of its parameters.
func TestFirstPlanWithoutGradientsKeepsParametersPlain(t *testing.T) {
	r := newRig(t, openParticular(tasteOfConvs), classifierGraph(t, twoConvs, 2, 4, tensor.F32, false))
	defer r.close()
	for i, p := range r.state.Params.Params {
		if p.Spec.Layout != device.Plain {
			t.Errorf("%s: got layout %d, want plain", p.Name, p.Spec.Layout)
		}
		if want := []string{"conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight", "conv2.bias", "fc.weight",
			"fc.bias"}[i]; p.Name != want {
			t.Errorf("parameter %d: got %s, want %s, in the model's order", i, p.Name, want)
		}
	}
}
