package plan

import (
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn/random"
)

// tb holds the methods that testing.T and rapid.T have in common.
type tb interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// rig is a compiled graph, with the memory to run it.
type rig struct {
	t      tb
	dev    device.Device
	cache  *Cache
	plan   *Plan
	state  *State
	arena  device.Buffer
	stream device.Stream
	inputs map[string][]byte // written before each run, because several plans may use one arena
}

// newRig compiles g as the first plan of a model. It gives each parameter and each state different values.
func newRig(t tb, dev device.Device, g *graph.Graph) *rig {
	t.Helper()
	r := &rig{t: t, dev: dev, cache: NewCache(dev), inputs: map[string][]byte{}}
	var err error
	if r.plan, err = Compile(r.cache, g, nil); err != nil {
		t.Fatal(err)
	}
	if r.state, err = NewState(r.cache, r.plan.Params()); err != nil {
		t.Fatal(err)
	}
	if r.stream, err = dev.NewStream(); err != nil {
		t.Fatal(err)
	}
	r.bind()
	for _, p := range r.plan.Params().Params {
		r.write(r.state.Values, p, initial(p))
	}
	for _, p := range r.plan.Params().States {
		r.write(r.state.States, p, initial(p))
	}
	return r
}

// bind binds the plan to an arena of exactly the required size.
func (r *rig) bind() {
	r.t.Helper()
	arena, err := r.dev.Alloc(r.plan.ArenaBytes())
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.plan.Bind(device.Whole(arena), r.state); err != nil {
		r.t.Fatal(err)
	}
	r.arena = arena
}

// compile compiles another plan of the same model and binds it to a separate arena.
func (r *rig) compile(g *graph.Graph) *rig {
	r.t.Helper()
	other := *r
	other.inputs = map[string][]byte{}
	var err error
	if other.plan, err = Compile(r.cache, g, r.state.Params); err != nil {
		r.t.Fatal(err)
	}
	other.bind()
	return &other
}

// release frees the plan and the arena that compile created.
func (r *rig) release() {
	r.t.Helper()
	for _, err := range []error{r.plan.Close(), r.arena.Free()} {
		if err != nil {
			r.t.Error(err)
		}
	}
}

// close frees everything and requires that no device memory remains allocated.
func (r *rig) close() {
	r.t.Helper()
	r.release()
	for _, err := range []error{r.state.Close(), r.stream.Close(), r.cache.Close()} {
		if err != nil {
			r.t.Error(err)
		}
	}
	if have, _ := r.dev.Memory(); have != 0 {
		r.t.Errorf("%d bytes of device memory are left after everything was closed", have)
	}
	if err := r.dev.Close(); err != nil {
		r.t.Error(err)
	}
}

// initial returns the initial values of a parameter. They follow its Init, but constants vary a little, so that no
// value is exactly 0 or 1.
func initial(p ParamInfo) []float64 {
	v := make([]float64, p.Spec.Shape.Elements())
	s := random.New(7, p.Name)
	for i := range v {
		switch p.Init.Kind {
		case graph.Constant:
			v[i] = p.Init.A + 0.2*(s.Uniform(uint64(i))-0.4)
		case graph.Given:
			v[i] = (*p.Init.Values)[i]
		case graph.Gaussian:
			v[i] = p.Init.A + p.Init.B*s.Normal(uint64(i))
		default:
			v[i] = p.Init.A + (p.Init.B-p.Init.A)*s.Uniform(uint64(i))
		}
	}
	return v
}

func (r *rig) write(flat device.Buffer, p ParamInfo, v []float64) {
	r.t.Helper()
	if err := r.state.Write(flat, p, reference.Encode(p.Spec.DType, v)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) readBytes(flat device.Buffer, p ParamInfo) []byte {
	r.t.Helper()
	b := make([]byte, p.Spec.Shape.Elements()*p.Spec.DType.Size())
	if err := r.state.Read(flat, p, b); err != nil {
		r.t.Fatal(err)
	}
	return b
}

func (r *rig) read(flat device.Buffer, p ParamInfo) []float64 {
	r.t.Helper()
	return reference.Decode(p.Spec.DType, r.readBytes(flat, p))
}

// gradient returns the gradient of a parameter by name.
func (r *rig) gradient(name string) []float64 {
	r.t.Helper()
	i, ok := r.state.Params.Find(name)
	if !ok {
		r.t.Fatalf("no parameter %s", name)
	}
	return r.read(r.state.Grads, r.state.Params.Params[i])
}

// input sets an input for later runs. For integer types, values must be whole numbers.
func (r *rig) input(name string, v []float64) {
	r.t.Helper()
	at, spec, err := r.plan.Input(name)
	if err != nil {
		r.t.Fatal(err)
	}
	b := reference.Encode(spec.DType, v)
	if int64(len(b)) != at.Bytes {
		r.t.Fatalf("input %s: got %d bytes, want %d of %v", name, len(b), at.Bytes, spec)
	}
	r.inputs[name] = b
}

func (r *rig) outputBytes(name string) []byte {
	r.t.Helper()
	at, _, err := r.plan.Output(name)
	if err != nil {
		r.t.Fatal(err)
	}
	return slices.Clone(at.Host())
}

func (r *rig) output(name string) []float64 {
	r.t.Helper()
	_, spec, err := r.plan.Output(name)
	if err != nil {
		r.t.Fatal(err)
	}
	return reference.Decode(spec.DType, r.outputBytes(name))
}

// run prepares the copies of parameters and runs the forward pass. If backward is set, it also runs the backward pass.
func (r *rig) run(backward bool) {
	r.t.Helper()
	if err := r.plan.Prepare(r.stream); err != nil {
		r.t.Fatal(err)
	}
	r.microBatch(backward)
}

// microBatch writes the inputs and runs the forward pass. If backward is set, it also runs the backward pass. It uses
// the existing copies of parameters.
func (r *rig) microBatch(backward bool) {
	r.t.Helper()
	for name, b := range r.inputs {
		at, _, err := r.plan.Input(name)
		if err != nil {
			r.t.Fatal(err)
		}
		copy(at.Host(), b)
	}
	if err := r.plan.Forward(r.stream); err != nil {
		r.t.Fatal(err)
	}
	if backward {
		if err := r.plan.Backward(r.stream); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.stream.Sync(); err != nil {
		r.t.Fatal(err)
	}
}

// loss returns the sum of the output "loss".
func (r *rig) loss() float64 {
	r.t.Helper()
	total := 0.0
	for _, l := range r.output("loss") {
		total += l
	}
	return total
}
