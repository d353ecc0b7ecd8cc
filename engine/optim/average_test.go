package optim

import (
	"math"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// The expected values are 1 minus the results of ModelEmaV3.get_decay in timm.
func TestWeightsOfUpdatesAreTimms(t *testing.T) {
	plain, warm := AverageOptions{Decay: 0.9}, AverageOptions{Decay: 0.9, Warmup: true}
	for _, c := range []struct {
		o    AverageOptions
		n    int
		want float64
	}{
		{plain, 1, 1}, {plain, 2, 0.1}, {plain, 1000, 0.1},
		{warm, 1, 1}, {warm, 2, 0.6299605249474366}, {warm, 8, 0.25}, {warm, 27, 1.0 / 9},
		{warm, 31, 0.10133485975456108}, {warm, 32, 0.1}, {warm, 100000, 0.1},
	} {
		if got := c.o.Weight(c.n); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("%+v, update %d: got %.17g, want %.17g", c.o, c.n, got, c.want)
		}
	}
	for n := 1; n < 1e7; n += n/3 + 1 {
		if got, want := cubeRoot(float64(n)), math.Cbrt(float64(n)); math.Abs(got-want) > 4e-16*want {
			t.Errorf("cube root of %d: got %.17g, want %.17g", n, got, want)
		}
	}
}

// All intermediate values are exact in f32. If the weight is 1, an average becomes the value. If it is 0.25, the
// average changes by a quarter of the difference.
func TestAveragesFollowTheValues(t *testing.T) {
	b := newRig(t, tensor.F32, []int{2})
	o := b.optimizer(Options{Name: "sgd"})
	a, err := NewAverage(b.cache, o, AverageOptions{Decay: 0.75, Interval: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	values := func(v []float64) { b.write(b.state.Values, v) }
	values([]float64{1, -1})
	if err := a.Reset(b.stream); err != nil {
		t.Fatal(err)
	}
	check := func(what string, want ...float64) {
		t.Helper()
		got := b.read(a.values)
		if got[0] != want[0] || got[1] != want[1] {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	step := func(v, grad []float64) {
		t.Helper()
		values(v)
		b.write(b.state.Grads, grad)
		if err := o.Step(b.stream, 0, 1); err != nil { // with a rate of 0, the step does not change the values
			t.Fatal(err)
		}
		if err := a.Step(b.stream, o.Steps()); err != nil {
			t.Fatal(err)
		}
		if err := b.stream.Sync(); err != nil {
			t.Fatal(err)
		}
		o.Result()
	}
	check("at first", 1, -1)
	step([]float64{3, 3}, []float64{1, 1})
	check("a step between updates", 1, -1)
	step([]float64{8, 16}, []float64{1, 1})
	check("the first update copies", 8, 16)
	step([]float64{0, 0}, []float64{1, 1})
	step([]float64{0, 32}, []float64{1, math.Inf(1)})
	check("a step that was refused", 8, 16)
	step([]float64{0, 32}, []float64{1, 1})
	check("the second takes a quarter", 6, 20)
	if err := a.Exchange(b.stream); err != nil {
		t.Fatal(err)
	}
	check("exchanged", 0, 32)
	if got := b.read(b.state.Values); got[0] != 6 || got[1] != 20 {
		t.Errorf("exchanged: the model has %v, want 6 and 20", got)
	}
	for i, v := range b.state.Grads.Host()[8:] {
		if v != 0 {
			t.Fatalf("byte %d of the gradients' padding is %d", 8+i, v)
		}
	}
}

func TestAveragesThatCannotBeAreRefused(t *testing.T) {
	b := newRig(t, tensor.F32, []int{2})
	o := b.optimizer(Options{Name: "sgd"})
	before, _ := b.dev.Memory()
	for _, opts := range []AverageOptions{{Decay: 1, Interval: 1}, {Decay: 0.9}, {Decay: math.NaN(), Interval: 1},
		{Interval: 1}} {
		if a, err := NewAverage(b.cache, o, opts); err == nil || a != nil ||
			!strings.Contains(err.Error(), "average of weights: got decay") {
			t.Errorf("%+v: got %v", opts, err)
		}
	}
	if after, _ := b.dev.Memory(); after != before {
		t.Errorf("%d bytes are left", after-before)
	}
}
