package plan

import (
	"encoding/binary"
	"errors"
	"math"
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

// classifier is a small training graph with its runtime on a device.
type classifier struct {
	t      *testing.T
	dev    device.Device
	cache  *Cache
	plan   *Plan
	state  *State
	stream device.Stream
	n      int
}

const classes = 5

func trainingGraph(model models.Classifier, n, size int, compute tensor.DType) (*graph.Graph, error) {
	return graph.Build(func(g *graph.Graph) {
		if compute == tensor.F64 {
			g.UseF64()
		}
		net := &nn.Net{Graph: g, Training: true, Compute: compute}
		net.IDs = g.Input("ids", tensor.I64, n)
		net.Key = g.Input("key", tensor.U32, 2)
		x := g.Input("images", tensor.U8, n, size, size, 3)
		labels := g.Input("labels", tensor.I32, n)
		scale := g.Input("scale", g.ParamType(), 1)
		images := g.ImageNormalize("normalize", x, []float32{0.5, 0.5, 0.5}, []float32{0.25, 0.25, 0.25}, compute)
		logits := model(net, images, classes)
		loss, rank := g.SoftmaxCrossEntropy("loss", logits, labels, 0.1)
		g.Output("loss", loss)
		g.Output("rank", rank)
		g.Differentiate(loss, scale)
	})
}

func newClassifier(t *testing.T, dev device.Device, model models.Classifier, n, size int, compute tensor.DType) *classifier {
	t.Helper()
	g, err := trainingGraph(model, n, size, compute)
	if err != nil {
		t.Fatal(err)
	}
	c := &classifier{t: t, dev: dev, cache: NewCache(dev), n: n}
	if c.plan, err = Compile(c.cache, g, nil); err != nil {
		t.Fatal(err)
	}
	if c.state, err = NewState(c.cache, c.plan.Params()); err != nil {
		t.Fatal(err)
	}
	arena, err := dev.Alloc(c.plan.ArenaBytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.plan.Bind(device.Whole(arena), c.state); err != nil {
		t.Fatal(err)
	}
	if c.stream, err = dev.NewStream(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range []error{c.plan.Close(), c.state.Close(), arena.Free(), c.stream.Close(), c.cache.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
		if have, _ := dev.Memory(); have != 0 {
			t.Errorf("%d bytes of device memory are left after everything was closed", have)
		}
	})
	for _, p := range c.plan.Params().Params {
		c.set(c.state.Values, p, initial(p))
	}
	for _, p := range c.plan.Params().States {
		c.set(c.state.States, p, initial(p))
	}
	return c
}

// initial is the start of a parameter, shifted a little so that nothing is exactly 0 or 1.
func initial(p ParamInfo) []float64 {
	v := make([]float64, p.Spec.Shape.Elements())
	s := random.New(7, p.Name)
	for i := range v {
		switch p.Init.Kind {
		case graph.Constant:
			v[i] = p.Init.A + 0.2*(s.Uniform(uint64(i))-0.4)
		case graph.Gaussian:
			v[i] = p.Init.B * s.Normal(uint64(i))
		default:
			v[i] = p.Init.A + (p.Init.B-p.Init.A)*s.Uniform(uint64(i))
		}
	}
	return v
}

func (c *classifier) set(flat device.Buffer, p ParamInfo, v []float64) {
	c.t.Helper()
	if err := c.state.Write(flat, p, encode(p.Spec.DType, v)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *classifier) get(flat device.Buffer, p ParamInfo) []float64 {
	c.t.Helper()
	b := make([]byte, p.Spec.Shape.Elements()*p.Spec.DType.Size())
	if err := c.state.Read(flat, p, b); err != nil {
		c.t.Fatal(err)
	}
	return decode(p.Spec.DType, b)
}

func encode(dt tensor.DType, v []float64) []byte {
	var b []byte
	for _, x := range v {
		if dt == tensor.F64 {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		} else {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
		}
	}
	return b
}

func decode(dt tensor.DType, b []byte) []float64 {
	v := make([]float64, int64(len(b))/dt.Size())
	for i := range v {
		if dt == tensor.F64 {
			v[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		} else {
			v[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		}
	}
	return v
}

func (c *classifier) input(name string, b []byte) {
	c.t.Helper()
	r, spec, err := c.plan.Input(name)
	if err != nil {
		c.t.Fatal(err)
	}
	if int64(len(b)) != spec.Size() {
		c.t.Fatalf("input %s: got %d bytes, want %d", name, len(b), spec.Size())
	}
	copy(r.Host(), b)
}

// step runs forward and backward on a fixed batch and returns the sum of the losses.
func (c *classifier) step(size int) float64 {
	c.t.Helper()
	s := random.New(3, "images")
	images := make([]byte, c.n*size*size*3)
	for i := range images {
		images[i] = byte(s.Bits(uint64(i)))
	}
	var labels, ids []byte
	for i := range c.n {
		labels = binary.LittleEndian.AppendUint32(labels, uint32(i%classes))
		ids = binary.LittleEndian.AppendUint64(ids, uint64(100+i))
	}
	c.input("images", images)
	c.input("labels", labels)
	c.input("ids", ids)
	c.input("key", []byte{1, 2, 3, 4, 5, 6, 7, 8})
	c.input("scale", encode(c.plan.Params().DType, []float64{1}))
	for _, run := range []func(device.Stream) error{c.plan.Prepare, c.plan.Forward, c.plan.Backward} {
		if err := run(c.stream); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := c.stream.Sync(); err != nil {
		c.t.Fatal(err)
	}
	r, spec, err := c.plan.Output("loss")
	if err != nil {
		c.t.Fatal(err)
	}
	total := 0.0
	for _, l := range decode(spec.DType, r.Host()) {
		total += l
	}
	return total
}

func open(t *testing.T) device.Device {
	t.Helper()
	dev, err := reference.Driver{}.Open(0, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

var small = simplecnn.Build(simplecnn.Options{Channels: []int{3, 5}, Dropout: 0.3})

// tinyResNet has every kind of block of the family at a size for finite differences.
var tinyResNet = resnet.Build(resnet.Depth{Blocks: [4]int{1, 1, 0, 0}}, resnet.Options{CIFARStem: true})

// checkGradients compares gradients with central differences of the loss, for count elements of every n-th parameter.
func checkGradients(t *testing.T, c *classifier, size, every, count int) {
	t.Helper()
	c.step(size)
	params := c.plan.Params().Params
	grads := make([][]float64, len(params))
	for i, p := range params {
		grads[i] = c.get(c.state.Grads, p)
	}
	for i := 0; i < len(params); i += every {
		p := params[i]
		values := c.get(c.state.Values, p)
		for j := 0; j < len(values); j += max(len(values)/count, 1) {
			const h = 1e-5
			v := values[j]
			values[j] = v + h
			c.set(c.state.Values, p, values)
			up := c.step(size)
			values[j] = v - h
			c.set(c.state.Values, p, values)
			down := c.step(size)
			values[j] = v
			c.set(c.state.Values, p, values)
			want := (up - down) / (2 * h)
			// Central differences err by h² times the third derivative and by rounding of the loss (1e-15/h); a ReLU that
			// flips within h adds a little more, rarely: 1e-5 relative to a gradient of order 1 covers both.
			if got := grads[i][j]; math.Abs(got-want) > 1e-5*max(1, math.Abs(want)) {
				t.Errorf("%s[%d]: gradient %.9g, finite difference %.9g", p.Name, j, got, want)
			}
		}
	}
}

func TestGradientsOfModelsEqualFiniteDifferences(t *testing.T) {
	for name, m := range map[string]models.Classifier{"simple_cnn": small, "resnet": tinyResNet} {
		t.Run(name, func(t *testing.T) {
			every, count := 1, 4
			if name == "resnet" { // a thousand times the arithmetic
				every, count = 3, 1
			}
			checkGradients(t, newClassifier(t, open(t), m, 4, 8, tensor.F64), 8, every, count)
		})
	}
}

// withoutFusion refuses the fused BatchNorm ops, as a device might.
type withoutFusion struct {
	device.Device
	refuse func(device.Op) bool
}

func (d withoutFusion) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
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
	all := func(op device.Op) bool {
		switch o := op.(type) {
		case device.BatchNormDiffApply:
			return o.ReLU
		case device.GlobalAvgPool, device.GlobalAvgPoolDiff:
			return true
		}
		return fusedApply(op) || fusedReduce(op)
	}
	fused := newClassifier(t, open(t), tinyResNet, 4, 8, tensor.F64)
	want := fused.step(8)
	for name, refuse := range map[string]func(device.Op) bool{"apply": fusedApply, "reduce": fusedReduce, "all": all} {
		t.Run(name, func(t *testing.T) {
			c := newClassifier(t, withoutFusion{open(t), refuse}, tinyResNet, 4, 8, tensor.F64)
			if got := c.step(8); math.Abs(got-want) > 1e-12*want {
				t.Errorf("loss: got %.15g, want %.15g", got, want)
			}
			for _, p := range fused.plan.Params().Params {
				i, _ := c.plan.Params().Find(p.Name)
				a, b := fused.get(fused.state.Grads, p), c.get(c.state.Grads, c.plan.Params().Params[i])
				for j := range a {
					if math.Abs(a[j]-b[j]) > 1e-12*max(1, math.Abs(a[j])) {
						t.Errorf("%s[%d]: got %.15g, want %.15g", p.Name, j, b[j], a[j])
						break
					}
				}
			}
		})
	}
}

func TestOpThatNothingReplacesIsAnErrorNamingTheNode(t *testing.T) {
	g, err := trainingGraph(small, 2, 8, tensor.F32)
	if err != nil {
		t.Fatal(err)
	}
	dev := withoutFusion{open(t), func(op device.Op) bool { return op.Kind() == "conv2d" }}
	_, err = Compile(NewCache(dev), g, nil)
	if !errors.Is(err, device.ErrUnsupported) {
		t.Fatalf("got %v, want ErrUnsupported", err)
	}
}
