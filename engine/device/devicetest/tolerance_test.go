package devicetest

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// TestErrorsOfCancelledTermsAreAllowed passes results of an H100 to the suite. In these results, terms cancel, and only
// their rounding errors remain. Larger errors must still fail.
func TestErrorsOfCancelledTermsAreAllowed(t *testing.T) {
	for _, c := range []struct {
		name  string
		dt    tensor.DType
		off   float64 // difference between the result and the true value of element 0
		wrong float64 // an error that rounding cannot explain
	}{
		{"bias_gelu gelu (1, 1)", tensor.F32, 1.05e-7, 3e-6},
		{"attention_diff {n:2 t:1 heads:2 d:8 packed:false causal:false lengths:true p:0}", tensor.F16, -6e-8, 1e-4},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := find(t, c.name)
			ct, oracle := conformance.Go(t), reference.New()
			values := found.materialize(typesFor(c.dt))
			on := func(dt tensor.DType) func() Tensor {
				result := found.on(ct, oracle, Caps{}, typesFor(dt), Pinned, values)[0]
				return func() Tensor { return result }
			}
			want := expected{typed: on(c.dt), plain: on(tensor.F32), truth: on(tensor.F64)}
			truth := want.truth()
			judge := func(off, terms float64) error {
				got := Of(c.dt, truth.Spec.Shape, append([]float64{truth.Values[0] + off}, truth.Values[1:]...)...)
				return found.tolerance.judge(got, want, found.chain, terms)
			}
			if err := judge(c.off, found.terms(values, 0)); err != nil {
				t.Error(err)
			}
			if judge(c.off, 0) == nil {
				t.Error("passes without its terms, so this test shows nothing")
			}
			if judge(c.wrong, found.terms(values, 0)) == nil {
				t.Errorf("an error of %g passes", c.wrong)
			}
		})
	}
}

func find(t *testing.T, name string) valueCase {
	t.Helper()
	for _, g := range valueTables() {
		for _, c := range g.cases {
			if c.name == name {
				return c
			}
		}
	}
	t.Fatalf("no case %q", name)
	return valueCase{}
}
