package optim

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// rig consists of parameters only, without layers. The test writes their gradients.
type rig struct {
	t      *testing.T
	dev    device.Device
	cache  *plan.Cache
	state  *plan.State
	stream device.Stream
}

// newRig returns a rig. Its parameters have the given shapes and the names p0, p1 and so on.
func newRig(t *testing.T, dt tensor.DType, shapes ...[]int) *rig {
	t.Helper()
	b := &rig{t: t, dev: reference.New()}
	b.cache = plan.NewCache(b.dev)
	g, err := graph.Build(func(g *graph.Graph) {
		if dt == tensor.F64 {
			g.UseF64()
		}
		for i, s := range shapes {
			g.Param(fmt.Sprint("p", i), graph.Const(0), s...)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Compile(b.cache, g, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b.state, err = plan.NewState(b.cache, p.Params()); err != nil {
		t.Fatal(err)
	}
	if b.stream, err = b.dev.NewStream(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(b.stream.Close(), b.state.Close(), b.cache.Close(), b.dev.Close()); err != nil {
			// fails if memory is still in use
			t.Error(err)
		}
	})
	return b
}

func (b *rig) optimizer(o Options) *Optimizer {
	b.t.Helper()
	opt, err := New(b.cache, b.state, b.state.Grads, o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := opt.Close(); err != nil {
			b.t.Error(err)
		}
	})
	return opt
}

// write writes v to all parameters in a flat buffer, in their order.
func (b *rig) write(flat device.Buffer, v []float64) {
	b.t.Helper()
	for _, p := range b.state.Params.Params {
		n := int(p.Spec.Shape.Elements())
		if err := b.state.Write(flat, p, reference.Encode(p.Spec.DType, v[:n])); err != nil {
			b.t.Fatal(err)
		}
		v = v[n:]
	}
}

// read returns the values that write wrote.
func (b *rig) read(flat device.Buffer) []float64 {
	b.t.Helper()
	var v []float64
	for _, p := range b.state.Params.Params {
		raw := make([]byte, p.Spec.Shape.Elements()*p.Spec.DType.Size())
		if err := b.state.Read(flat, p, raw); err != nil {
			b.t.Fatal(err)
		}
		v = append(v, reference.Decode(p.Spec.DType, raw)...)
	}
	return v
}

// step runs one update with the gradients g.
func (b *rig) step(o *Optimizer, g []float64, rate, unscale float64) (norm float64, ok bool) {
	b.t.Helper()
	b.write(b.state.Grads, g)
	if err := errors.Join(o.Step(b.stream, rate, unscale), b.stream.Sync()); err != nil {
		b.t.Fatal(err)
	}
	return o.Result()
}

// bytes returns all memory that an update may change.
func (b *rig) bytes(o *Optimizer) []byte {
	all := slices.Clone(b.state.Values.Host())
	for _, m := range o.Moments() {
		all = append(all, m.Flat.Host()...)
	}
	return all
}

// wave returns n numbers around 0 that depend on seed. None of them is 0.
func wave(n int, seed float64) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = math.Sin(1.7*float64(i)+seed) + 0.01
	}
	return v
}

// The expected values are those of PyTorch 2.15 for the weight 1 and the gradients 0.5, -0.25, 0.125.
func TestUpdatesOfOneWeightArePyTorchs(t *testing.T) {
	for _, c := range []struct {
		name    string
		options Options
		rate    float64
		want    []float64
		within  float64
	}{
		// All intermediate values are exact in f32.
		{"sgd", Options{Name: "sgd"}, 0.25, []float64{0.875, 0.9375, 0.90625}, 0},
		{"sgd with momentum and decay", Options{Name: "sgd", Momentum: 0.5, WeightDecay: 0.5}, 0.25,
			[]float64{0.75, 0.59375, 0.41015625}, 0},
		{"sgd of Nesterov", Options{Name: "sgd", Momentum: 0.5, WeightDecay: 0.5, Nesterov: true}, 0.25,
			[]float64{0.625, 0.5390625, 0.35595703125}, 0},
		// The distance between f32 numbers near 1 is 6e-8. A step rounds six times, and the last value is that of the
		// third step.
		{"adamw", Options{Name: "adamw", Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01}, 0.1,
			[]float64{0.899000002, 0.8714672987058463, 0.8365529176159483}, 5e-7},
		{"adamw with a large epsilon", Options{Name: "adamw", Beta1: 0.5, Beta2: 0.75, Eps: 0.125}, 0.1,
			[]float64{0.92, 0.92, 0.9030486720809205}, 5e-7},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newRig(t, tensor.F32, []int{1})
			o := b.optimizer(c.options)
			b.write(b.state.Values, []float64{1})
			for i, g := range []float64{0.5, -0.25, 0.125} {
				norm, ok := b.step(o, []float64{g}, c.rate, 1)
				if got := b.read(b.state.Values)[0]; math.Abs(got-c.want[i]) > c.within {
					t.Errorf("step %d: got %.12g, want %.12g", i, got, c.want[i])
				}
				if norm != math.Abs(g) || !ok || o.Steps() != i+1 {
					t.Errorf("step %d: got norm %g, ok %v, %d steps, want %g, true, %d", i, norm, ok, o.Steps(),
						math.Abs(g), i+1)
				}
			}
		})
	}
}

// twin is a second implementation of the update rules, in f64. It follows their papers and PyTorch's documentation.
type twin struct {
	o     Options
	decay []float64 // weight decay of each element
	w     []float64
	m, v  []float64
	t     int
}

func newTwin(o Options, w, decay []float64) *twin {
	return &twin{o: o, decay: decay, w: slices.Clone(w), m: make([]float64, len(w)), v: make([]float64, len(w))}
}

func norm(g []float64) float64 {
	sum := 0.0
	for _, x := range g {
		sum += x * x
	}
	return math.Sqrt(sum)
}

// step runs one update. It returns the gradient norm before clipping.
func (w *twin) step(g []float64, rate, unscale float64) float64 {
	total := norm(g) * unscale
	factor := unscale
	if w.o.ClipNorm > 0 && total > w.o.ClipNorm {
		factor *= w.o.ClipNorm / total
	}
	w.t++
	for i := range w.w {
		g := g[i] * factor
		if w.o.Name == "sgd" {
			g += w.decay[i] * w.w[i]
			w.m[i] = w.o.Momentum*w.m[i] + g
			if w.o.Nesterov {
				g += w.o.Momentum * w.m[i]
			} else {
				g = w.m[i]
			}
			w.w[i] -= rate * g
			continue
		}
		w.w[i] -= rate * w.decay[i] * w.w[i]
		w.m[i] = w.o.Beta1*w.m[i] + (1-w.o.Beta1)*g
		w.v[i] = w.o.Beta2*w.v[i] + (1-w.o.Beta2)*g*g
		m := w.m[i] / (1 - math.Pow(w.o.Beta1, float64(w.t)))
		v := w.v[i] / (1 - math.Pow(w.o.Beta2, float64(w.t)))
		w.w[i] -= rate * m / (math.Sqrt(v) + w.o.Eps)
	}
	return total
}

// notBiases excludes parameters of one dimension from weight decay.
func notBiases(_ string, shape tensor.Shape) bool { return len(shape) > 1 }

func TestUpdatesEqualAStraightforwardImplementation(t *testing.T) {
	const steps = 12
	shapes := [][]int{{3, 5}, {5}, {2, 3, 3}, {17}, {1, 40}}
	for _, o := range []Options{
		{Name: "sgd"},
		{Name: "sgd", WeightDecay: 0.05},
		{Name: "sgd", Momentum: 0.9},
		{Name: "sgd", Momentum: 0.9, Nesterov: true, WeightDecay: 0.05, Decays: notBiases},
		{Name: "sgd", Momentum: 0.9, WeightDecay: 0.05, Decays: func(name string, _ tensor.Shape) bool {
			return name == "p3"
		}, ClipNorm: 3},
		{Name: "adamw", Beta1: 0.9, Beta2: 0.999, Eps: 1e-8},
		{Name: "adamw", Beta1: 0.8, Beta2: 0.95, Eps: 1e-3, WeightDecay: 0.1, Decays: notBiases, ClipNorm: 0.5},
	} {
		for _, dt := range []tensor.DType{tensor.F32, tensor.F64} {
			t.Run(fmt.Sprintf("%v %+v", dt, o), func(t *testing.T) {
				b := newRig(t, dt, shapes...)
				opt := b.optimizer(o)
				start := wave(15+5+18+17+40, 0.3)
				b.write(b.state.Values, start)
				// For parameters of every type, kernels get their settings as f32.
				for _, v := range []*float64{&o.Momentum, &o.WeightDecay, &o.Beta1, &o.Beta2, &o.Eps} {
					*v = float64(float32(*v))
				}
				var decay []float64
				for i, s := range shapes {
					d := o.WeightDecay
					if o.Decays != nil && !o.Decays(fmt.Sprint("p", i), s) {
						d = 0
					}
					decay = append(decay, slices.Repeat([]float64{d}, int(tensor.Shape(s).Elements()))...)
				}
				w := newTwin(o, start, decay)
				for i := range steps {
					g := wave(len(start), float64(i))
					if dt == tensor.F32 {
						for j := range g {
							g[j] = float64(float32(g[j]))
						}
					}
					rate, unscale := float64(float32(0.1/float64(i+1))), 1.0
					if i%3 == 2 {
						unscale = 1. / 128
						for j := range g {
							g[j] *= 128
						}
					}
					want := w.step(g, rate, unscale)
					got, ok := b.step(opt, g, rate, unscale)
					if !ok || math.Abs(got-want) > 1e-7*want { // the optimizer sums in f64, and stores the norm as f32
						t.Errorf("step %d: norm: got %.9g, %v, want %.9g", i, got, ok, want)
					}
				}
				// In f32, each of the 12 steps rounds about six times. Near 1, the error of a rounding is 6e-8. In f64,
				// the only errors are those of f32 scalars: the rate, the bias correction and the clipping factor. They
				// multiply updates of about 0.1.
				within := map[tensor.DType]float64{tensor.F32: steps * 6 * 6e-8, tensor.F64: steps * 0.1 * 1.2e-7}[dt]
				for i, v := range b.read(b.state.Values) {
					if !(math.Abs(v-w.w[i]) <= within) {
						t.Fatalf("value %d: got %.12g, want %.12g within %.2g (from %.6g)", i, v, w.w[i], within,
							start[i])
					}
				}
				for k, m := range opt.Moments() {
					want := [][]float64{w.m, w.v}[k]
					for i, v := range b.read(m.Flat) {
						if !(math.Abs(v-want[i]) <= within*max(1, math.Abs(want[i]))) {
							t.Fatalf("%s %d: got %.12g, want %.12g", m.Name, i, v, want[i])
						}
					}
				}
			})
		}
	}
}

// The result must be that of PyTorch's clip_grad_norm_, except for the 1e-6 in its denominator. If the norm is below
// the limit, no bit of the gradients may change.
func TestClippingTouchesOnlyGradientsThatAreTooLarge(t *testing.T) {
	for _, c := range []struct {
		clip, unscale float64
		want          []float64 // clipped gradients (3, 4) of a step at rate 1; their norm is 5 before unscaling
	}{
		{0, 1, []float64{-3, -4}},
		{5, 1, []float64{-3, -4}},
		{5.000001, 1, []float64{-3, -4}},
		{2.5, 1, []float64{-1.5, -2}},
		{0.5, 1, []float64{-0.3, -0.4}},
		{2.5, 0.5, []float64{-1.5, -2}},
		{2.5, 0.25, []float64{-0.75, -1}},
	} {
		b := newRig(t, tensor.F32, []int{1}, []int{1}) // the norm is that of both parameters together
		o := b.optimizer(Options{Name: "sgd", ClipNorm: c.clip})
		norm, ok := b.step(o, []float64{3, 4}, 1, c.unscale)
		if norm != 5*c.unscale || !ok {
			t.Errorf("clip %g, unscale %g: got norm %g, %v, want %g before clipping", c.clip, c.unscale, norm, ok,
				5*c.unscale)
		}
		for i, v := range b.read(b.state.Values) {
			if math.Abs(v-c.want[i]) > 1e-7 {
				t.Errorf("clip %g, unscale %g: value %d: got %g, want %g", c.clip, c.unscale, i, v, c.want[i])
			}
		}
	}
}

func TestNormCoversMoreThanOneChunk(t *testing.T) {
	b := newRig(t, tensor.F32, []int{normChunk - 3}, []int{7}, []int{2*normChunk + 1})
	o := b.optimizer(Options{Name: "sgd"})
	g := slices.Repeat([]float64{0.5}, 3*normChunk+5)
	got, ok := b.step(o, g, 0.1, 1)
	if want := float64(float32(0.5 * math.Sqrt(float64(len(g))))); !ok || got != want { // sums of 0.25 are exact
		t.Errorf("got %.9g, %v, want %.9g: padding must not count, chunks must not be lost", got, ok, want)
	}
}

func TestGradientThatIsNotFiniteChangesNothing(t *testing.T) {
	for _, o := range []Options{
		{Name: "sgd", WeightDecay: 0.1},
		{Name: "sgd", Momentum: 0.9, Nesterov: true, WeightDecay: 0.1, ClipNorm: 1},
		{Name: "adamw", Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1},
	} {
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			for _, place := range []int{0, 6, 14} { // the ends of a parameter, and another parameter
				t.Run(fmt.Sprintf("%s, momentum %g, %g at %d", o.Name, o.Momentum, bad, place), func(t *testing.T) {
					b, clean := newRig(t, tensor.F32, []int{3, 2}, []int{9}),
						newRig(t, tensor.F32, []int{3, 2}, []int{9})
					opt, twin := b.optimizer(o), clean.optimizer(o)
					for _, b := range []*rig{b, clean} {
						b.write(b.state.Values, wave(15, 0.3))
					}
					for i := range 3 {
						g := wave(15, float64(i))
						b.step(opt, g, 0.1, 1)
						clean.step(twin, g, 0.1, 1)
						before := b.bytes(opt)
						g[place] = bad
						norm, ok := b.step(opt, g, 0.1, 1)
						if ok || !math.IsNaN(norm) && !math.IsInf(norm, 1) {
							t.Errorf("step %d: got norm %g and ok %v, want a norm that is not finite and false", i,
								norm, ok)
						}
						if !bytes.Equal(b.bytes(opt), before) || opt.Steps() != i+1 {
							t.Errorf("step %d: values, moments or the count of %d steps changed", i, opt.Steps())
						}
					}
					if !bytes.Equal(b.bytes(opt), clean.bytes(twin)) { // the bias correction must not count the step
						t.Error("values or moments differ from those of a run without bad steps")
					}
				})
			}
		}
	}
}

func TestRunGoesOnFromMomentsAndSteps(t *testing.T) {
	o := Options{Name: "adamw", Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1}
	whole := newRig(t, tensor.F32, []int{3, 2}, []int{9})
	a := whole.optimizer(o)
	whole.write(whole.state.Values, wave(15, 0.3))
	for i := range 6 {
		whole.step(a, wave(15, float64(i)), 0.1, 1)
	}

	first, second := newRig(t, tensor.F32, []int{3, 2}, []int{9}), newRig(t, tensor.F32, []int{3, 2}, []int{9})
	b, c := first.optimizer(o), second.optimizer(o)
	first.write(first.state.Values, wave(15, 0.3))
	for i := range 3 {
		first.step(b, wave(15, float64(i)), 0.1, 1)
	}
	second.write(second.state.Values, first.read(first.state.Values))
	for i, m := range b.Moments() {
		if m.Name != c.Moments()[i].Name {
			t.Errorf("moment %d: got %s and %s", i, m.Name, c.Moments()[i].Name)
		}
		second.write(c.Moments()[i].Flat, first.read(m.Flat))
	}
	c.SetSteps(b.Steps())
	for i := 3; i < 6; i++ {
		second.step(c, wave(15, float64(i)), 0.1, 1)
	}
	if !bytes.Equal(second.bytes(c), whole.bytes(a)) || c.Steps() != 6 {
		t.Error("values or moments differ from those of a run that never stopped")
	}
}

func TestMemoryIsExactlyWhatBytesSays(t *testing.T) {
	for _, c := range []struct {
		options Options
		moments []string
	}{
		{Options{Name: "sgd"}, nil},
		{Options{Name: "sgd", Momentum: 0.9}, []string{"momentum"}},
		{Options{Name: "adamw", Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}, []string{"exp_avg", "exp_avg_sq"}},
	} {
		b := newRig(t, tensor.F32, []int{100, 200}, []int{200})
		before, _ := b.dev.Memory()
		o, err := New(b.cache, b.state, b.state.Grads, c.options)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range o.Moments() {
			names = append(names, m.Name)
			if m.Flat.Bytes() != b.state.Params.Bytes || slices.Max(m.Flat.Host()) != 0 {
				t.Errorf("%s: got %d bytes, want %d zeros", m.Name, m.Flat.Bytes(), b.state.Params.Bytes)
			}
		}
		if !slices.Equal(names, c.moments) {
			t.Errorf("%s: got moments %v, want %v", c.options.Name, names, c.moments)
		}
		have, _ := b.dev.Memory()
		// The optimizer has its moments, the scalars, and two f64 partial sums of the norm.
		want := int64(len(c.moments))*b.state.Params.Bytes + partialAt + 2*8
		if o.Bytes() != want || have-before != want {
			t.Errorf("%+v: got %d bytes, %d of the device's memory, want %d", c.options, o.Bytes(), have-before, want)
		}
		_, peak := b.dev.Memory()
		b.step(o, wave(100*200+200, 1), 0.1, 1)
		if _, after := b.dev.Memory(); after != peak {
			t.Errorf("a step took %d bytes of device memory", after-peak)
		}
		if err := errors.Join(o.Close(), o.Close()); err != nil { // a second Close has no effect
			t.Error(err)
		}
		if left, _ := b.dev.Memory(); left != before {
			t.Errorf("%d bytes are left after Close", left-before)
		}
	}
}

// scarce is a device that allocates a few buffers, including host memory. After these, allocations fail.
type scarce struct {
	device.Device
	buffers int
}

func (d *scarce) Alloc(n int64) (device.Buffer, error)     { return d.take(n, d.Device.Alloc) }
func (d *scarce) AllocHost(n int64) (device.Buffer, error) { return d.take(n, d.Device.AllocHost) }

func (d *scarce) take(n int64, alloc func(int64) (device.Buffer, error)) (device.Buffer, error) {
	if d.buffers--; d.buffers < 0 {
		return nil, device.ErrOutOfMemory
	}
	return alloc(n)
}

func TestOptimizerThatCannotBeMadeLeavesNothingBehind(t *testing.T) {
	b := newRig(t, tensor.F32, []int{3, 4})
	before, _ := b.dev.Memory()
	for name, want := range map[string]string{"adam": "optimizer adam: unknown name, want sgd or adamw",
		"": "unknown name", "SGD": "unknown name"} {
		if o, err := New(b.cache, b.state, b.state.Grads, Options{Name: name}); err == nil || o != nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", name, err, want)
		}
	}
	for buffers := range 5 { // the optimizer needs 4: two moments, scalars and their host twin
		dev := &scarce{reference.New(), 1000}
		cache := plan.NewCache(dev)
		state, err := plan.NewState(cache, b.state.Params)
		if err != nil {
			t.Fatal(err)
		}
		with, _ := dev.Memory()
		dev.buffers = buffers
		o, err := New(cache, state, state.Grads, Options{Name: "adamw"})
		if buffers == 4 {
			if err != nil {
				t.Fatal(err)
			}
			err = o.Close()
		} else if !errors.Is(err, device.ErrOutOfMemory) || !strings.HasPrefix(err.Error(), "optimizer adamw: ") ||
			o != nil {
			t.Errorf("%d buffers: got %v, want ErrOutOfMemory of optimizer adamw", buffers, err)
		}
		if left, _ := dev.Memory(); left != with {
			t.Errorf("%d buffers: %d bytes are left", buffers, left-with)
		}
		if err := errors.Join(state.Close(), cache.Close(), dev.Close()); err != nil {
			t.Error(err)
		}
	}
	if after, _ := b.dev.Memory(); after != before {
		t.Errorf("%d bytes are left", after-before)
	}
}

// The expected factors are those of timm: layer_decay to the power of the number of later layers.
func TestLayersBehindLearnFaster(t *testing.T) {
	b := newRig(t, tensor.F32, []int{16}, []int{16}, []int{16}, []int{16})
	for i := range b.state.Params.Params {
		b.state.Params.Params[i].Layer = []int{2, 2, 1, 0}[i] // in the order in which the backward pass completes them
	}
	o := b.optimizer(Options{Name: "sgd", LayerDecay: 0.75})
	want := []device.Segment{{Offset: 0, Length: 32, LRScale: 1}, {Offset: 32, Length: 16, LRScale: 0.75},
		{Offset: 48, Length: 16, LRScale: 0.5625}}
	if got := o.segments(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNeighboursOfEqualDecayAreOneSegment(t *testing.T) {
	b := newRig(t, tensor.F32, []int{3, 5}, []int{5}, []int{7}, []int{2, 2}, []int{4, 4}) // rounded up to 16 elements
	all := []device.Segment{{Offset: 0, Length: 80, WeightDecay: 0.5, LRScale: 1}}
	for name, c := range map[string]struct {
		decays func(string, tensor.Shape) bool
		want   []device.Segment
	}{
		"all decay": {nil, all},
		"biases do not": {notBiases, []device.Segment{
			{Offset: 0, Length: 16, WeightDecay: 0.5, LRScale: 1}, {Offset: 16, Length: 32, LRScale: 1},
			{Offset: 48, Length: 32, WeightDecay: 0.5, LRScale: 1}}},
		"none does": {func(string, tensor.Shape) bool { return false },
			[]device.Segment{{Offset: 0, Length: 80, LRScale: 1}}},
	} {
		o := b.optimizer(Options{Name: "sgd", WeightDecay: 0.5, Decays: c.decays})
		if got := o.segments(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
