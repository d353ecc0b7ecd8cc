package devicetest

import (
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// runLayouts reorders tensors to and from every private layout that convolutions and linear layers request.
func runLayouts(t conformance.T, open Opener, caps Caps) {
	dev := opened(t, open, device.Options{})
	for _, dt := range caps.Types {
		found := privateLayouts(t, dev, caps, dt)
		if len(found) == 0 {
			t.Logf("%v: the device has no private layouts", dt)
		}
		for _, s := range found {
			t.Run(fmt.Sprintf("%v there and back", s), func(t conformance.T) { thereAndBack(t, dev, s) })
			t.Run(fmt.Sprintf("%v with another type", s), func(t conformance.T) { retype(t, dev, caps, s) })
			for _, other := range found {
				if other.Layout != s.Layout && other.DType == s.DType && other.Shape.Equal(s.Shape) {
					t.Run(fmt.Sprintf("%v to layout %d", s, other.Layout), func(t conformance.T) {
						fromTo(t, dev, s, other)
					})
				}
			}
		}
	}
}

// privateLayouts returns each private layout once per shape and type.
func privateLayouts(t conformance.T, dev device.Device, caps Caps, dt tensor.DType) []device.TensorSpec {
	r := NewRunner(t, dev)
	defer r.Close()
	r.Lacks = caps.Lacks
	var found []device.TensorSpec
	for _, c := range append(convCases(), linearCases()...) {
		values := c.materialize(typesFor(dt))
		r.Types = typesFor(dt)
		in := make([]Operand, len(values))
		for i, v := range values {
			in[i] = r.Upload(v)
		}
		before := len(r.kernels)
		c.run(r, in)
		for _, k := range r.kernels[before:] {
			for _, s := range append(k.In(), k.Out()...) {
				if s.Layout >= device.FirstPrivate && !slices.ContainsFunc(found, s.Same) {
					found = append(found, s)
				}
			}
		}
	}
	return found
}

// filled returns a tensor of the spec's shape and type. No element is zero.
func filled(r *Runner, s device.TensorSpec) Operand {
	return r.Upload(Random(s.DType, s.Shape, 3, Integers(1, 100)))
}

func thereAndBack(t conformance.T, dev device.Device, s device.TensorSpec) {
	r := NewRunner(t, dev)
	defer r.Close()
	x := filled(r, s)
	there := r.Reorder(x, s.Layout)
	if there.Spec.Size() != s.Size() {
		t.Errorf("got %d bytes, another kernel said %d for the same tensor", there.Spec.Size(), s.Size())
	}
	if err := equal(r.Download(there), r.Download(x)); err != nil {
		t.Error(err)
	}
}

func fromTo(t conformance.T, dev device.Device, from, to device.TensorSpec) {
	r := NewRunner(t, dev)
	defer r.Close()
	x := filled(r, from)
	if err := equal(r.Download(r.Reorder(r.Reorder(x, from.Layout), to.Layout)), r.Download(x)); err != nil {
		t.Error(err)
	}
}

// retype converts the element type of a tensor without changing the layout. The values are small integers, which every
// type can represent.
func retype(t conformance.T, dev device.Device, caps Caps, s device.TensorSpec) {
	r := NewRunner(t, dev)
	defer r.Close()
	r.Policy = Carried
	x := filled(r, s)
	for _, to := range caps.Types {
		converted := r.Do(device.Reorder{To: to}, r.Reorder(x, s.Layout))[0]
		got := r.Download(converted)
		if got.Spec.DType != to {
			t.Errorf("got %v, want %v", got.Spec.DType, to)
		}
		if err := equal(got, r.Download(x)); err != nil {
			t.Errorf("to %v: %v", to, err)
		}
	}
}
