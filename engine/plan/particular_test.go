package plan

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// particular is a device that prefers private layouts. Its kernels convert operands to plain layout, run the kernels of
// the reference device, and convert the results back. The results are bit-equal to those of the reference device under
// two conditions. Every operand must have the layout that its kernel requires, and no launch may overwrite a live
// operand. If the caller violates the contract of package device, this is an error.
type particular struct {
	device.Device // memory and events
	compute       *reference.Device

	// taste returns the layout that a kernel of op requires for operand i. If out is set, the operand is an output.
	// have is the present layout of the operand, or Any if the planner leaves the choice. The result is a private
	// layout, Plain, or have.
	taste func(op device.Op, out bool, i int, have device.Layout) device.Layout
	// refuse reports whether the device refuses an op with these specs. The specs contain the requested layouts.
	refuse func(op device.Op, in, out []device.TensorSpec) bool
	// If inPlace is set, every output may share memory with every input of the same size. This is possible because
	// kernels read all inputs before they write an output.
	inPlace bool
	// workspace is the size of the scratch memory of every kernel, in bytes. At each launch, this memory contains
	// arbitrary bytes.
	workspace int64
}

// newParticular returns a device that accepts every layout, until the test changes its fields.
func newParticular() *particular {
	return &particular{Device: reference.New(), compute: reference.New(),
		taste:  func(_ device.Op, _ bool, _ int, have device.Layout) device.Layout { return have },
		refuse: func(device.Op, []device.TensorSpec, []device.TensorSpec) bool { return false }}
}

// These are the private layouts.
const (
	channelsLast = device.FirstPrivate + iota // dimension 1 innermost, padded to a multiple of 4
	reversed                                  // dimensions from last to first
	// dimensions from last to first, the innermost padded to a multiple of 3
	reversedPadded
	privateEnd
)

// LayoutName implements device.LayoutNamer.
func (*particular) LayoutName(l device.Layout) string {
	return [...]string{"channels-last", "reversed", "reversed-padded"}[l-device.FirstPrivate]
}

// physical returns the order and the extents of the dimensions in memory, for a private layout.
func physical(l device.Layout, shape tensor.Shape) (order, extents []int) {
	pad := 1
	for d := range shape {
		order = append(order, d)
	}
	switch l {
	case channelsLast:
		pad = 4
		if len(shape) > 2 {
			order = append(append(order[:1:1], order[2:]...), 1)
		}
	case reversedPadded:
		pad = 3
		slices.Reverse(order)
	case reversed:
		slices.Reverse(order)
	}
	for _, d := range order {
		extents = append(extents, shape[d])
	}
	last := len(extents) - 1
	extents[last] = (extents[last] + pad - 1) / pad * pad
	return order, extents
}

// lie returns the spec of a tensor in layout l. Scalars and saved state are always plain.
func lie(s device.TensorSpec, l device.Layout) device.TensorSpec {
	if l < device.FirstPrivate || len(s.Shape) == 0 || s.DType == tensor.Opaque {
		return device.TensorSpec{Shape: s.Shape, DType: s.DType, Bytes: s.Bytes}
	}
	_, extents := physical(l, s.Shape)
	return device.TensorSpec{Shape: s.Shape, DType: s.DType, Layout: l,
		Bytes: tensor.Shape(extents).Elements() * s.DType.Size()}
}

// elementOffsets returns the byte offset of each element in the layout of s. The elements are in row-major order.
func elementOffsets(s device.TensorSpec) []int64 {
	order, extents := physical(s.Layout, s.Shape)
	strides := make([]int64, len(order))
	for k, step := range tensor.Shape(extents).Strides() {
		strides[order[k]] = step * s.DType.Size()
	}
	list := []int64{0}
	for d, extent := range s.Shape {
		var longer []int64
		for _, o := range list {
			for i := range extent {
				longer = append(longer, o+int64(i)*strides[d])
			}
		}
		list = longer
	}
	return list
}

// arrange copies a plain tensor to the layout of s, and sets the padding to zero.
func arrange(dst, plain []byte, s device.TensorSpec) {
	if s.Layout == device.Plain {
		copy(dst, plain)
		return
	}
	clear(dst)
	size := s.DType.Size()
	for i, at := range elementOffsets(s) {
		copy(dst[at:at+size], plain[int64(i)*size:])
	}
}

// straighten copies a tensor from the layout of s to plain layout. If padding is not zero, it returns an error.
func straighten(plain, src []byte, s device.TensorSpec) error {
	if s.Layout == device.Plain {
		copy(plain, src)
		return nil
	}
	size, rest := s.DType.Size(), slices.Clone(src)
	for i, at := range elementOffsets(s) {
		copy(plain[int64(i)*size:], src[at:at+size])
		clear(rest[at : at+size])
	}
	if i := slices.IndexFunc(rest, func(b byte) bool { return b != 0 }); i >= 0 {
		return fmt.Errorf("%v: byte %d of the padding is not zero", s, i)
	}
	return nil
}

// particularKernel is a kernel of the reference device whose operands have other layouts.
type particularKernel struct {
	device.Kernel
	op      device.Op
	dev     *particular
	in, out []device.TensorSpec
}

func (d *particular) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	if d.refuse(op, in, out) {
		return nil, fmt.Errorf("%s: %w", op.Kind(), device.ErrUnsupported)
	}
	// Casts, reorders and updates in place keep the layouts of their operands.
	_, moves := op.(device.Reorder)
	choose := func(s device.TensorSpec, result bool, i int) (device.TensorSpec, error) {
		if s.Layout >= privateEnd || s.Layout > device.Any && s.Layout < device.FirstPrivate {
			return s, fmt.Errorf("%s: layout %d is none of ours", op.Kind(), s.Layout)
		}
		want := s.Layout
		bound := moves || len(device.Aliases(op)) > 0 || result && want != device.Any
		if !bound {
			want = d.taste(op, result, i, want)
		}
		got := lie(device.TensorSpec{Shape: s.Shape, DType: s.DType}, want)
		if s.DType != tensor.Opaque && s.Bytes != 0 && s.Layout == got.Layout && s.Bytes != got.Size() {
			return s, fmt.Errorf("%s: %v: got %d bytes, want %d", op.Kind(), s, s.Bytes, got.Size())
		}
		return got, nil
	}
	k := &particularKernel{op: op, dev: d}
	var plainIn, plainOut []device.TensorSpec
	for i, s := range in {
		want, err := choose(s, false, i)
		if err != nil {
			return nil, err
		}
		k.in, plainIn = append(k.in, want), append(plainIn, plainly(s))
	}
	for i, s := range out {
		want, err := choose(s, true, i)
		if err != nil {
			return nil, err
		}
		k.out, plainOut = append(k.out, want), append(plainOut, plainly(s))
	}
	for _, a := range device.Aliases(op) {
		k.out[a.Out] = k.in[a.In]
	}
	var err error
	if k.Kernel, err = d.compute.Compile(op, plainIn, plainOut); err != nil {
		return nil, err
	}
	for i, s := range k.Kernel.In() {
		k.in[i].Bytes = max(k.in[i].Bytes, s.Bytes) // the device determines the size of saved state
	}
	for i, s := range k.Kernel.Out() {
		k.out[i].Bytes = max(k.out[i].Bytes, s.Bytes)
	}
	return k, nil
}

// plainly returns s as the reference device needs it: in plain layout.
func plainly(s device.TensorSpec) device.TensorSpec {
	if s.DType == tensor.Opaque {
		return device.TensorSpec{Shape: s.Shape, DType: s.DType, Bytes: s.Bytes}
	}
	return device.TensorSpec{Shape: s.Shape, DType: s.DType}
}

func (k *particularKernel) In() []device.TensorSpec  { return slices.Clone(k.in) }
func (k *particularKernel) Out() []device.TensorSpec { return slices.Clone(k.out) }
func (k *particularKernel) Workspace() int64         { return k.dev.workspace }

func (k *particularKernel) InPlace() []device.Alias {
	if !k.dev.inPlace {
		return nil
	}
	var pairs []device.Alias
	for o, out := range k.out {
		for i, in := range k.in {
			if out.Size() == in.Size() {
				pairs = append(pairs, device.Alias{Out: o, In: i})
			}
		}
	}
	return pairs
}

// particularProgram runs each launch on plain copies of its operands.
type particularProgram struct {
	launches []*device.Launch
	inner    []device.Program
	copies   [][]device.Region // inputs, then outputs, of each launch
}

func (d *particular) NewProgram(steps []device.Step) (device.Program, error) {
	p := &particularProgram{}
	for i, s := range steps {
		if err := d.add(p, s.Launch); err != nil {
			return nil, errors.Join(fmt.Errorf("step %d: %s: %w", i, s.Launch.Name, err), p.Close())
		}
	}
	return p, nil
}

func (d *particular) add(p *particularProgram, l *device.Launch) error {
	k := l.Kernel.(*particularKernel)
	if err := k.check(l); err != nil {
		return err
	}
	inner := &device.Launch{Name: l.Name, Kernel: k.Kernel}
	var copies []device.Region
	p.launches = append(p.launches, l)
	for _, s := range append(k.Kernel.In(), k.Kernel.Out()...) {
		b, err := d.compute.Alloc(s.Size())
		if err != nil {
			return err
		}
		copies = append(copies, device.Whole(b))
	}
	p.copies = append(p.copies, copies)
	inner.In, inner.Out = slices.Clone(copies[:len(k.in)]), slices.Clone(copies[len(k.in):])
	for _, a := range device.Aliases(k.op) {
		inner.Out[a.Out] = inner.In[a.In]
	}
	prog, err := d.compute.NewProgram([]device.Step{{Launch: inner}})
	if err == nil {
		p.inner = append(p.inner, prog)
	}
	return err
}

// check returns an error unless each region has the size that the kernel requires. Regions may overlap only if the op
// requires this or the kernel allows it.
func (k *particularKernel) check(l *device.Launch) error {
	overlap := func(a, b device.Region) bool {
		return a.Buffer == b.Buffer && a.Bytes > 0 && b.Bytes > 0 && a.Offset < b.Offset+b.Bytes &&
			b.Offset < a.Offset+a.Bytes
	}
	for i, r := range append(slices.Clone(l.In), l.Out...) {
		want := append(slices.Clone(k.in), k.out...)[i]
		if err := r.Check(); err != nil || r.Bytes != want.Size() || r.Offset%alignBytes != 0 {
			return fmt.Errorf("operand %d: got %d bytes at %d, want %d bytes, the size of %v, aligned (%w)", i, r.Bytes,
				r.Offset, want.Size(), want, err)
		}
		if overlap(r, l.Workspace) {
			return fmt.Errorf("operand %d lies in the workspace", i)
		}
	}
	if l.Workspace.Bytes != k.Workspace() {
		return fmt.Errorf("workspace: got %d bytes, want %d", l.Workspace.Bytes, k.Workspace())
	}
	may := append(device.Aliases(k.op), k.InPlace()...)
	for o, out := range l.Out {
		for i, in := range l.In {
			if overlap(out, in) && (out != in || !slices.Contains(may, device.Alias{Out: o, In: i})) {
				return fmt.Errorf("output %d overlaps input %d", o, i)
			}
		}
		for other := range o {
			if overlap(out, l.Out[other]) {
				return fmt.Errorf("outputs %d and %d overlap", other, o)
			}
		}
	}
	for _, a := range device.Aliases(k.op) {
		if l.Out[a.Out] != l.In[a.In] {
			return fmt.Errorf("output %d updates input %d in place: got a different region, want the same region",
				a.Out, a.In)
		}
	}
	return nil
}

func (p *particularProgram) Close() error {
	var errs []error
	for _, prog := range p.inner {
		errs = append(errs, prog.Close())
	}
	for _, copies := range p.copies {
		for _, r := range copies {
			errs = append(errs, r.Buffer.Free())
		}
	}
	return errors.Join(errs...)
}

// particularStream copies on the device that has the memory, and computes on the reference device.
type particularStream struct {
	device.Stream
	compute device.Stream
}

func (d *particular) NewStream() (device.Stream, error) {
	memory, err := d.Device.NewStream()
	if err != nil {
		return nil, err
	}
	compute, err := d.compute.NewStream()
	return &particularStream{memory, compute}, err
}

func (s *particularStream) Close() error { return errors.Join(s.Stream.Close(), s.compute.Close()) }

func (s *particularStream) Run(p device.Program) error {
	return s.RunTimed(p, make([]time.Duration, len(p.(*particularProgram).launches)))
}

func (s *particularStream) RunTimed(p device.Program, elapsed []time.Duration) error {
	prog := p.(*particularProgram)
	for i, l := range prog.launches {
		k, copies := l.Kernel.(*particularKernel), prog.copies[i]
		for j, r := range l.In {
			if err := straighten(copies[j].Host(), r.Host(), k.in[j]); err != nil {
				return fmt.Errorf("%s: input %d: %w", l.Name, j, err)
			}
		}
		if l.Workspace.Bytes > 0 {
			fill(l.Workspace.Host(), 0xA5)
		}
		if err := s.compute.RunTimed(prog.inner[i], elapsed[i:i+1]); err != nil {
			return err
		}
		for j, r := range l.Out {
			from := copies[len(l.In)+j]
			for _, a := range device.Aliases(k.op) {
				if a.Out == j {
					from = copies[a.In]
				}
			}
			arrange(r.Host(), from.Host(), k.out[j])
		}
	}
	return nil
}

func fill(b []byte, with byte) {
	for i := range b {
		b[i] = with
	}
}

// Close implements device.Device.
func (d *particular) Close() error { return errors.Join(d.Device.Close(), d.compute.Close()) }

// moody returns a random layout preference. For the same operand of the same op, it always gives the same layout. In
// one of four cases, this is the present layout.
func moody(seed uint64) func(device.Op, bool, int, device.Layout) device.Layout {
	return func(op device.Op, out bool, i int, have device.Layout) device.Layout {
		h := fnv.New64a()
		fmt.Fprint(h, seed, op.Kind(), out, i)
		switch n := h.Sum64() >> 7 % 6; n {
		case 0, 1:
			if have == device.Any {
				return device.Plain
			}
			return have
		case 2:
			return device.Plain
		default:
			return device.FirstPrivate + device.Layout(n-3)
		}
	}
}
