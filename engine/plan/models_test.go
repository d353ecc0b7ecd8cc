package plan

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/models/resnet"
	"github.com/hetero-train/hetero-train/engine/models/simplecnn"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/nn/random"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

const classes = 5

// classifierGraph returns the graph of a model with its loss, for n images of size·size pixels. If training is set, it
// also contains the gradients.
func classifierGraph(t tb, model models.Classifier, n, size int, compute tensor.DType, training bool) *graph.Graph {
	t.Helper()
	g, err := graph.Build(func(g *graph.Graph) {
		if compute == tensor.F64 {
			g.UseF64()
		}
		net := &nn.Net{Graph: g, Training: training, Compute: compute}
		if training {
			net.IDs, net.Key = g.Input("ids", tensor.I64, n), g.Input("key", tensor.U32, 2)
		}
		x := g.Input("images", tensor.U8, n, size, size, 3)
		labels := g.Input("labels", tensor.I32, n)
		logits := model(net, g.ImageNormalize("normalize", x, []float32{0.5, 0.5, 0.5}, []float32{0.25, 0.25, 0.25},
			compute), classes)
		loss, position := g.SoftmaxCrossEntropy("loss", logits, labels, 0.1)
		g.Output("loss", loss)
		g.Output("position", position)
		if training {
			g.Differentiate(loss, g.Input("scale", g.ParamType(), 1))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// batch writes the inputs of a classifier. An image depends only on its position in the batch.
func (r *rig) batch() {
	r.t.Helper()
	_, spec, err := r.plan.Input("images")
	if err != nil {
		r.t.Fatal(err)
	}
	images := make([]float64, spec.Shape.Elements())
	s := random.New(3, "images")
	for i := range images {
		images[i] = float64(byte(s.Bits(uint64(i))))
	}
	labels, ids := make([]float64, spec.Shape[0]), make([]float64, spec.Shape[0])
	for i := range labels {
		labels[i], ids[i] = float64(i%classes), float64(100+i)
	}
	r.input("images", images)
	r.input("labels", labels)
	r.optional("ids", ids)
	r.optional("key", []float64{0x04030201, 0x08070605})
	r.optional("scale", []float64{1})
}

var small = simplecnn.Build(simplecnn.Options{Channels: []int{3, 5}, Dropout: 0.3})

// These are the smallest ResNets that contain every kind of block: with and without a projection, and with kernels of
// both widths.
var (
	tinyBasic      = resnet.Build(resnet.Depth{Blocks: [4]int{1, 1, 0, 0}}, resnet.Options{CIFARStem: true})
	tinyBottleneck = resnet.Build(resnet.Depth{Blocks: [4]int{2, 0, 0, 0}, Bottleneck: true}, resnet.Options{})
)

// The test moves each parameter along one random direction of length 1, so that all elements affect the loss. The
// tolerance is relative to the norm of the gradient. It is larger than that of TestRulesEqualFiniteDifferences, because
// a ReLU may change its sign within h.
func TestGradientsOfModelsEqualFiniteDifferences(t *testing.T) {
	const h, tolerance = 1e-5, 1e-6
	for _, c := range []struct {
		name    string
		model   models.Classifier
		n, size int
	}{
		{"simple_cnn", small, 4, 8},
		{"resnet of basic blocks", tinyBasic, 2, 3},
		{"resnet of bottlenecks with the imagenet stem", tinyBottleneck, 2, 6},
		{"resnet that drops branches", resnet.Build(resnet.Depth{Blocks: [4]int{2, 1, 0, 0}},
			resnet.Options{CIFARStem: true, StochasticDepth: 0.6}), 4, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, reference.New(), classifierGraph(t, c.model, c.n, c.size, tensor.F64, true))
			defer r.close()
			r.batch()
			r.run(true)
			for _, p := range r.state.Params.Params {
				grad, start := r.gradient(p.Name), r.read(r.state.Values, p)
				direction := unitVector(p.Name, len(start))
				at := func(step float64) float64 {
					moved := make([]float64, len(start))
					for i := range moved {
						moved[i] = start[i] + step*direction[i]
					}
					r.write(r.state.Values, p, moved)
					r.run(false)
					return r.loss()
				}
				want := (at(h) - at(-h)) / (2 * h)
				r.write(r.state.Values, p, start)
				got, norm := dot(grad, direction), math.Sqrt(dot(grad, grad))
				if !(math.Abs(got-want) <= tolerance*max(norm, 1e-3)) {
					t.Errorf("%s: slope %.9g, finite difference %.9g (norm of the gradient %.3g)", p.Name, got, want,
						norm)
				}
			}
		})
	}
}

func unitVector(name string, n int) []float64 {
	v, s := make([]float64, n), random.New(5, name)
	for i := range v {
		v[i] = s.Normal(uint64(i))
	}
	length := math.Sqrt(dot(v, v))
	for i := range v {
		v[i] /= length
	}
	return v
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// twoBlocks contains all variants of a fused normalisation: with and without ReLU, and with and without a residual. Its
// gradient has one or two contributions.
func twoBlocks(net *nn.Net, x *graph.Value, classes int) *graph.Value {
	x = net.BatchNorm("bn0", net.Conv2D("conv0", x, nn.Conv{Out: 4, Kernel: 3, Padding: 1}), nn.Norm{ReLU: true})
	for i, channels := range []int{4, 6} {
		name := func(layer string) string { return fmt.Sprint("block", i, ".", layer) }
		shortcut := net.BatchNorm(name("projection.bn"),
			net.Conv2D(name("projection"), x, nn.Conv{Out: channels, Kernel: 1, Stride: 2}), nn.Norm{})
		y := net.BatchNorm(name("bn1"),
			net.Conv2D(name("conv1"), x, nn.Conv{Out: channels, Kernel: 3, Stride: 2, Padding: 1}), nn.Norm{ReLU: true})
		x = net.BatchNorm(name("bn2"), net.Conv2D(name("conv2"), y, nn.Conv{Out: channels, Kernel: 3, Padding: 1}),
			nn.Norm{ReLU: true, Residual: shortcut})
	}
	return net.Logits("fc", net.GlobalAvgPool("pool", x), classes)
}

// refusing is a device that refuses some ops.
type refusing struct {
	device.Device
	refuse func(device.Op) bool
}

func (d refusing) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	if d.refuse(op) {
		return nil, device.ErrUnsupported
	}
	return d.Device.Compile(op, in, out)
}

func TestDecomposedOpsGiveTheSameGradients(t *testing.T) {
	fusedApply := func(op device.Op) bool {
		o, ok := op.(device.BatchNormApply)
		return ok && (o.ReLU || o.Add)
	}
	fusedReduce := func(op device.Op) bool {
		o, ok := op.(device.BatchNormDiffReduce)
		return ok && (o.ReLU || o.Add || o.Two)
	}
	fusedDiffApply := func(op device.Op) bool {
		o, ok := op.(device.BatchNormDiffApply)
		return ok && o.ReLU
	}
	pool := func(op device.Op) bool {
		return op.Kind() == (device.GlobalAvgPool{}).Kind() || op.Kind() == (device.GlobalAvgPoolDiff{}).Kind()
	}
	g := classifierGraph(t, twoBlocks, 3, 4, tensor.F64, true)
	fused := newRig(t, reference.New(), g)
	defer fused.close()
	fused.batch()
	fused.run(true)
	for name, refuse := range map[string]func(device.Op) bool{
		"apply": fusedApply, "reduce": fusedReduce, "gradient of the images": fusedDiffApply, "pooling": pool,
		"all": func(op device.Op) bool { return fusedApply(op) || fusedReduce(op) || fusedDiffApply(op) || pool(op) },
	} {
		t.Run(name, func(t *testing.T) {
			refused := 0
			r := newRig(t, refusing{reference.New(), func(op device.Op) bool {
				if refuse(op) {
					refused++
				}
				return refuse(op)
			}}, g)
			defer r.close()
			if refused == 0 {
				t.Error("the device was never asked for what it refuses")
			}
			r.batch()
			r.run(true)
			if got, want := r.loss(), fused.loss(); math.Abs(got-want) > 1e-12*want { // sums of f64 in another order
				t.Errorf("loss: got %.15g, want %.15g", got, want)
			}
			for _, p := range fused.state.Params.Params {
				if rel := distance(r.gradient(p.Name), fused.gradient(p.Name)); !(rel < 1e-12) {
					t.Errorf("%s: gradient differs by %.3g of its norm, want less than 1e-12", p.Name, rel)
				}
			}
		})
	}
}

func TestOpThatNothingReplacesIsAnErrorNamingTheNode(t *testing.T) {
	g := classifierGraph(t, small, 2, 8, tensor.F32, true)
	for node, refuse := range map[string]func(device.Op) bool{
		"block0.conv1": func(op device.Op) bool { return op.Kind() == "conv2d" },
		// its decomposition also needs batch_norm_apply
		"block0.bn1": func(op device.Op) bool { return op.Kind() == "batch_norm_apply" },
		"pool":       func(op device.Op) bool { return op.Kind() == "global_avg_pool" || op.Kind() == "reduce" },
	} {
		t.Run(node, func(t *testing.T) {
			_, err := Compile(NewCache(refusing{reference.New(), refuse}), g, nil)
			if !errors.Is(err, device.ErrUnsupported) || !strings.Contains(err.Error(), "plan: "+node+" on reference") {
				t.Errorf("got %v, want ErrUnsupported and the name of %s", err, node)
			}
		})
	}
}
