package optim

import (
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

func TestNormsAreThoseOfEachParameter(t *testing.T) {
	b := newRig(t, tensor.F32, []int{3}, []int{2, 2 * normChunk}, []int{1}) // the second has several partial sums
	o := b.optimizer(Options{Name: "sgd", ClipNorm: 1e-3, WeightDecay: 0.5})
	n, err := NewNorms(b.cache, b.state, b.state.Grads)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	count := b.state.Params.Elements()
	values, grads := wave(count, 1), wave(count, 2)
	b.write(b.state.Values, values)
	b.write(b.state.Grads, grads)
	if err := n.Before(b.stream); err != nil {
		t.Fatal(err)
	}
	if err := o.Step(b.stream, 0.1, 1); err != nil {
		t.Fatal(err)
	}
	if err := n.After(b.stream); err != nil {
		t.Fatal(err)
	}
	if err := b.stream.Sync(); err != nil {
		t.Fatal(err)
	}
	after := b.read(b.state.Values)
	if len(n.Result(1)) != 3 {
		t.Fatalf("got %d parameters, want 3", len(n.Result(1)))
	}
	for i, got := range n.Result(1) {
		size := int(b.state.Params.Params[i].Spec.Shape.Elements())
		change := make([]float64, size)
		for j := range change {
			change[j] = float64(float32(float32(after[j]) - float32(values[j])))
		}
		f32 := func(v []float64) []float64 {
			out := make([]float64, len(v))
			for j := range v {
				out[j] = float64(float32(v[j]))
			}
			return out
		}
		for _, c := range []struct {
			what      string
			got, want float64
		}{{"gradient", got.Gradient, norm(f32(grads[:size]))}, {"weight", got.Weight, norm(after[:size])},
			{"update", got.Update, norm(change)}} {
			if !(math.Abs(c.got-c.want) <= 1e-12*c.want) || c.want == 0 { // sums of f64 in another order
				t.Errorf("%s of %s: got %.15g, want %.15g", c.what, got.Name, c.got, c.want)
			}
		}
		values, grads, after = values[size:], grads[size:], after[size:]
	}
}
