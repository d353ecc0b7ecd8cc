//go:build cgo && linux

package native

// #include "bridge.h"
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// dtypes maps element types to their C constants.
var dtypes = [...]C.int32_t{
	tensor.F32: C.HT_F32, tensor.F64: C.HT_F64, tensor.BF16: C.HT_BF16, tensor.F16: C.HT_F16, tensor.I64: C.HT_I64,
	tensor.I32: C.HT_I32, tensor.U32: C.HT_U32, tensor.U8: C.HT_U8, tensor.Opaque: C.HT_OPAQUE,
}

func toSpec(s device.TensorSpec) (C.ht_spec, error) {
	var c C.ht_spec
	if s.DType == tensor.Invalid || int(s.DType) >= len(dtypes) {
		return c, fmt.Errorf("got element type %v", s.DType)
	}
	if err := s.Shape.Check(); err != nil {
		return c, err
	}
	c.dtype, c.ndim, c.layout, c.bytes = dtypes[s.DType], C.int32_t(len(s.Shape)), C.uint32_t(s.Layout),
		C.int64_t(s.Bytes)
	for i, d := range s.Shape {
		c.dims[i] = C.int64_t(d)
	}
	return c, nil
}

var _ = [1]struct{}{}[device.MaxOperands-C.HT_MAX_OPERANDS] // fails to compile unless both are equal

func toSpecs(a *arena, side string, specs []device.TensorSpec) (*C.ht_spec, C.int32_t, error) {
	if len(specs) > C.HT_MAX_OPERANDS {
		return nil, 0, fmt.Errorf("got %d %ss, want at most %d", len(specs), side, int(C.HT_MAX_OPERANDS))
	}
	list := array[C.ht_spec](a, len(specs))
	for i, s := range specs {
		c, err := toSpec(s)
		if err != nil {
			return nil, 0, fmt.Errorf("%s %d: %w", side, i, err)
		}
		list[i] = c
	}
	return unsafe.SliceData(list), C.int32_t(len(specs)), nil
}

func fromSpecs(list *C.ht_spec, n C.int32_t) []device.TensorSpec {
	specs := make([]device.TensorSpec, n)
	for i, c := range unsafe.Slice(list, n) {
		s := device.TensorSpec{
			DType: tensor.DType(slices.Index(dtypes[:], c.dtype)), Layout: device.Layout(c.layout),
			Bytes: int64(c.bytes),
		}
		if c.dtype != C.HT_OPAQUE {
			s.Shape = make(tensor.Shape, c.ndim)
		}
		for j := range s.Shape {
			s.Shape[j] = int(c.dims[j])
		}
		specs[i] = s
	}
	return specs
}

// kernel implements device.Kernel.
type kernel struct {
	dev       *Device
	ptr       *C.ht_kernel
	op        device.Op
	name      string // kind of the op
	in, out   []device.TensorSpec
	workspace int64
	inPlace   []device.Alias // pairs that the kernel allows
	aliases   []device.Alias // pairs that the op requires
	holds     holds          // counts programs that launch the kernel
}

// Compile implements device.Device.
func (d *Device) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	if op == nil {
		return nil, fmt.Errorf("%s: compile: got no op", d.info.Name)
	}
	where := d.info.Name + ": compile " + op.Kind()
	var a arena
	defer a.free()
	cin, nin, err := toSpecs(&a, "input", in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	cout, nout, err := toSpecs(&a, "output", out)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	if err := checkRequest(op, in, out); err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	code, params, size, err := parameters(&a, op)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	if err := d.hold(); err != nil {
		return nil, err
	}
	d.compile.Lock()
	defer d.compile.Unlock()
	r := C.ht_do_compile(d.api, d.ptr, code, params, C.size_t(size), cin, nin, cout, nout)
	if err := check(r, d.info.Name+": compile"); err != nil { // the library's text names the op
		d.holds.release()
		return nil, err
	}
	k := &kernel{dev: d, ptr: (*C.ht_kernel)(r.value), op: op, name: op.Kind(), aliases: device.Aliases(op)}
	desc := put(&a, C.ht_kernel_desc{})
	C.ht_do_kernel_desc(d.api, k.ptr, desc)
	k.in, k.out, k.workspace = fromSpecs(desc.in, desc.num_in), fromSpecs(desc.out, desc.num_out), int64(desc.workspace)
	for _, p := range unsafe.Slice(desc.inplace, desc.num_inplace) {
		k.inPlace = append(k.inPlace, device.Alias{Out: int(p.out), In: int(p.in)})
	}
	return k, nil
}

// checkRequest compares the specs with those that the op infers, so that a library can rely on their shapes.
func checkRequest(op device.Op, in, out []device.TensorSpec) error {
	want, err := op.Infer(in)
	if err != nil {
		return err
	}
	if len(out) != len(want) {
		return fmt.Errorf("got %d outputs, want %d", len(out), len(want))
	}
	for i, w := range want {
		if out[i].DType != w.DType || (w.DType != tensor.Opaque && !out[i].Shape.Equal(w.Shape)) {
			return fmt.Errorf("output %d: got %v, want %v", i, out[i], w)
		}
	}
	return nil
}

func (k *kernel) In() []device.TensorSpec  { return k.in }
func (k *kernel) Out() []device.TensorSpec { return k.out }
func (k *kernel) Workspace() int64         { return k.workspace }
func (k *kernel) InPlace() []device.Alias  { return k.inPlace }
func (k *kernel) mayShare(a device.Alias) bool {
	return slices.Contains(k.inPlace, a) || slices.Contains(k.aliases, a)
}

func (k *kernel) Close() error {
	if err := k.holds.close(k.dev.info.Name+": close a kernel of "+k.name, "launches"); err != nil {
		return err
	}
	C.ht_do_kernel_free(k.dev.api, k.ptr)
	k.dev.holds.release()
	return nil
}
