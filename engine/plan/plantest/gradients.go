package plantest

import (
	"errors"
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn/random"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

const (
	// step is half the distance between the two points of a central difference. The error of the difference is step²/6
	// times the third derivative, about 1e-11 here, plus the rounding error of the loss, 1e-16/step = 1e-11. The scale
	// of the loss multiplies this rounding error by at most 1000.
	step = 1e-5
	// tolerance is the largest allowed error of a gradient, relative to the largest gradient. The largest gradient is
	// of order 1, so tolerance exceeds both errors above. A mistake in a formula causes a larger error.
	tolerance = 1e-7
	// least is the smallest accepted value of the largest gradient. With smaller gradients the check would be
	// meaningless.
	least = 1e-2
	// seed is the seed of the parameters' initial values.
	seed = 7
)

// Gradients compares the gradients of all parameters that build declares with central finite differences, in f64 on the
// reference device. build returns the value under test, which has at least 2 elements. The loss is a softmax
// cross-entropy over these elements. Parameters start with their initial values ([graph.Uniform], for example). No
// operand may be within 1e-5 of a kink of the function (ReLU at 0).
func Gradients(build func(g *graph.Graph) *graph.Value) (err error) {
	scale := 0.0
	g, err := graph.Build(func(g *graph.Graph) {
		g.UseF64()
		y := build(g)
		n := int(y.Shape.Elements())
		scale = float64(n) // gives gradients of order 1 for any number of elements
		loss, _ := g.SoftmaxCrossEntropy("loss of the check", g.Reshape("logits of the check", y, 1, n),
			g.Input("labels of the check", tensor.I32, 1), 0.1)
		g.Output("loss of the check", loss)
		g.Differentiate(loss, g.Input("scale of the check", tensor.F64, 1))
	})
	if err != nil {
		return err
	}
	if len(g.Gradients) == 0 {
		return errors.New("check gradients: the value does not depend on a parameter: declare the operands with Param")
	}
	r := &rig{dev: reference.New(), scale: scale}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(g); err != nil {
		return err
	}
	return r.check()
}

// rig is a compiled graph with its memory.
type rig struct {
	dev    *reference.Device
	plan   *plan.Plan
	state  *plan.State
	stream device.Stream
	scale  float64
	ends   []func() error
}

func (r *rig) open(g *graph.Graph) (err error) {
	cache := plan.NewCache(r.dev)
	r.ends = append(r.ends, r.dev.Close, cache.Close)
	if r.plan, err = plan.Compile(cache, g, nil); err != nil {
		return err
	}
	r.ends = append(r.ends, r.plan.Close)
	if r.state, err = plan.NewState(cache, r.plan.Params()); err != nil {
		return err
	}
	r.ends = append(r.ends, r.state.Close)
	if r.stream, err = r.dev.NewStream(); err != nil {
		return err
	}
	r.ends = append(r.ends, r.stream.Close)
	arena, err := r.dev.Alloc(r.plan.ArenaBytes())
	if err != nil {
		return err
	}
	r.ends = append(r.ends, arena.Free)
	if err := r.plan.Bind(device.Whole(arena), r.state); err != nil {
		return err
	}
	for _, p := range r.plan.Params().Params {
		if err := r.state.Write(r.state.Values, p, reference.Encode(tensor.F64, initial(p))); err != nil {
			return err
		}
	}
	for _, s := range r.plan.Params().States {
		if err := r.state.Write(r.state.States, s, reference.Encode(tensor.F64, initial(s))); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) close() error {
	var errs []error
	// The plan is closed before its arena and the state, because it uses both.
	for i := len(r.ends) - 1; i >= 0; i-- {
		errs = append(errs, r.ends[i]())
	}
	return errors.Join(errs...)
}

// initial returns the initial values of a parameter or state.
func initial(p plan.ParamInfo) []float64 {
	v := make([]float64, p.Spec.Shape.Elements())
	s := random.New(seed, p.Name)
	for i := range v {
		switch p.Init.Kind {
		case graph.Constant:
			v[i] = p.Init.A
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

// run computes the scaled loss. If backward is set, it also computes the gradients.
func (r *rig) run(backward bool) (loss float64, err error) {
	for name, value := range map[string]float64{"labels of the check": 1, "scale of the check": r.scale} {
		at, spec, err := r.plan.Input(name)
		if err != nil {
			return 0, err
		}
		copy(at.Host(), reference.Encode(spec.DType, []float64{value}))
	}
	passes := []func(device.Stream) error{r.plan.Prepare, r.plan.Forward}
	if backward {
		passes = append(passes, r.plan.Backward)
	}
	for _, pass := range passes {
		if err := pass(r.stream); err != nil {
			return 0, err
		}
	}
	if err := r.stream.Sync(); err != nil {
		return 0, err
	}
	at, spec, err := r.plan.Output("loss of the check")
	if err != nil {
		return 0, err
	}
	return reference.Decode(spec.DType, at.Host())[0] * r.scale, nil
}

func (r *rig) read(flat device.Buffer, p plan.ParamInfo) ([]float64, error) {
	b := make([]byte, p.Spec.Shape.Elements()*p.Spec.DType.Size())
	err := r.state.Read(flat, p, b)
	return reference.Decode(p.Spec.DType, b), err
}

// check compares every element of every gradient with a central difference. It fails if no gradient reaches least.
func (r *rig) check() error {
	if _, err := r.run(true); err != nil {
		return err
	}
	grads, largest := map[string][]float64{}, 0.0
	for _, p := range r.state.Params.Params {
		if p.Frozen {
			continue
		}
		v, err := r.read(r.state.Grads, p)
		if err != nil {
			return err
		}
		grads[p.Name] = v
		for _, x := range v {
			largest = max(largest, math.Abs(x))
		}
	}
	if !(largest >= least) {
		return fmt.Errorf("check gradients: the largest gradient is %g, want at least %g: the check tests nothing",
			largest, least)
	}
	for _, p := range r.state.Params.Params {
		if err := r.compare(p, grads[p.Name], largest); err != nil {
			return err
		}
	}
	return nil
}

// compare compares the gradient of one parameter with central differences. grad is nil for a frozen parameter.
func (r *rig) compare(p plan.ParamInfo, grad []float64, largest float64) error {
	values, err := r.read(r.state.Values, p)
	if err != nil {
		return err
	}
	at := func(i int, x float64) (float64, error) {
		values[i] = x
		if err := r.state.Write(r.state.Values, p, reference.Encode(p.Spec.DType, values)); err != nil {
			return 0, err
		}
		return r.run(true) // the backward pass may compute the loss
	}
	for i, got := range grad {
		v := values[i]
		above, err1 := at(i, v+step)
		below, err2 := at(i, v-step)
		_, err3 := at(i, v)
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		if want := (above - below) / (2 * step); !(math.Abs(got-want) <= tolerance*largest) {
			return fmt.Errorf("check gradients: %s[%d]: got the gradient %.9g, want %.9g, the finite difference",
				p.Name, i, got, want)
		}
	}
	return nil
}
