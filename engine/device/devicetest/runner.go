package devicetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Policy determines the layouts that a Runner requests.
type Policy int

// Policies.
const (
	// Free lets the device choose every layout.
	Free Policy = iota
	// Carried requests the current layouts of the inputs and lets the device choose the layouts of outputs, as a
	// planner does.
	Carried
	// Pinned requires plain outputs.
	Pinned
	// Settled compiles with free layouts, and then again with exactly the layouts that were returned. If all of these
	// are plain, it also compiles the request of the policy Carried.
	Settled
	// Shared is like Free, but outputs use the memory of inputs if the kernel allows it.
	Shared
	numPolicies
)

func (p Policy) String() string {
	return [...]string{"free", "carried", "pinned", "settled", "shared"}[p]
}

// Types are the element types of one run.
type Types struct {
	Float tensor.DType // type of images and of weights that the kernels read
	Param tensor.DType // type of statistics, biases and gradients of parameters: f64 if Float is f64, else f32
}

// typesFor returns the types of a run whose activations have type dt.
func typesFor(dt tensor.DType) Types {
	if dt == tensor.F64 {
		return Types{tensor.F64, tensor.F64}
	}
	return Types{dt, tensor.F32}
}

// Runner runs single ops on a device. It owns all memory that it allocates; Close frees it.
type Runner struct {
	Types
	Policy Policy
	// Lacks lists op kinds for which the device may return ErrUnsupported. Their tests are then skipped.
	Lacks []string
	// NoValues states that the device computes no values, so the runner does not check memory.
	NoValues bool
	// AnyPadding disables the check of padding. Set it if operands contain NaN, because NaN·0 may reach the padding.
	AnyPadding bool

	t        conformance.TB
	dev      device.Device
	stream   device.Stream
	buffers  []device.Buffer
	kernels  []device.Kernel
	programs []device.Program
	// elsewhere is true if a kernel had a tensor in another layout than plain.
	elsewhere bool
}

// Operand is a tensor in device memory.
type Operand struct {
	Spec   device.TensorSpec
	Region device.Region
}

// NewRunner returns a runner for f32. It fails the test on any error.
func NewRunner(t conformance.TB, dev device.Device) *Runner {
	t.Helper()
	s, err := dev.NewStream()
	if err != nil {
		t.Fatalf("new stream: %v", err)
	}
	return &Runner{Types: typesFor(tensor.F32), t: t, dev: dev, stream: s}
}

// Close frees everything: programs before kernels, then memory.
func (r *Runner) Close() {
	r.t.Helper()
	var errs []error
	for _, p := range r.programs {
		errs = append(errs, p.Close())
	}
	for _, k := range r.kernels {
		errs = append(errs, k.Close())
	}
	for _, b := range r.buffers {
		errs = append(errs, b.Free())
	}
	errs = append(errs, r.stream.Close())
	if err := errors.Join(errs...); err != nil {
		r.t.Errorf("close: %v", err)
	}
}

// Alloc returns device memory with all bytes set to fill.
func (r *Runner) Alloc(bytes int64, fill byte) device.Region {
	r.t.Helper()
	b, err := r.dev.Alloc(bytes)
	if err != nil {
		r.t.Fatalf("alloc %d bytes: %v", bytes, err)
	}
	r.buffers = append(r.buffers, b)
	r.write(device.Whole(b), slices.Repeat([]byte{fill}, int(bytes)))
	return device.Whole(b)
}

// write copies data to device memory.
func (r *Runner) write(dst device.Region, data []byte) {
	r.t.Helper()
	r.staged(int64(len(data)), func(host device.Region) error {
		copy(host.Host(), data)
		return r.stream.Copy(dst, host)
	})
}

// Bytes copies device memory to the host.
func (r *Runner) Bytes(src device.Region) []byte {
	r.t.Helper()
	var data []byte
	r.staged(src.Bytes, func(host device.Region) error {
		if err := r.stream.Copy(host, src); err != nil {
			return err
		}
		err := r.stream.Sync()
		data = slices.Clone(host.Host())
		return err
	})
	return data
}

// staged calls f with page-locked memory and synchronises.
func (r *Runner) staged(bytes int64, f func(host device.Region) error) {
	r.t.Helper()
	host, err := r.dev.AllocHost(bytes)
	if err != nil {
		r.t.Fatalf("alloc %d bytes of host memory: %v", bytes, err)
	}
	if err := f(device.Whole(host)); err != nil {
		r.t.Fatalf("copy of %d bytes: %v", bytes, err)
	}
	if err := r.stream.Sync(); err != nil {
		r.t.Fatalf("sync: %v", err)
	}
	if err := host.Free(); err != nil {
		r.t.Fatalf("free host memory: %v", err)
	}
}

// Upload copies a tensor to device memory in plain layout.
func (r *Runner) Upload(x Tensor) Operand {
	r.t.Helper()
	data := x.Raw
	if x.Spec.DType != tensor.Opaque {
		if int64(len(x.Values)) != x.Spec.Shape.Elements() {
			r.t.Fatalf("upload %v: got %d values, want %d", x.Spec, len(x.Values), x.Spec.Shape.Elements())
		}
		data = reference.Encode(x.Spec.DType, x.Values)
	}
	o := Operand{Spec: x.Spec, Region: r.Alloc(int64(len(data)), 0)}
	r.write(o.Region, data)
	return o
}

// Download copies a tensor to the host.
func (r *Runner) Download(o Operand) Tensor {
	r.t.Helper()
	if o.Spec.DType == tensor.Opaque {
		return Tensor{Spec: o.Spec, Raw: r.Bytes(o.Region)}
	}
	p := r.Reorder(o, device.Plain)
	return Tensor{Spec: p.Spec, Values: reference.Decode(p.Spec.DType, r.Bytes(p.Region))}
}

// Reorder converts an operand to a layout.
func (r *Runner) Reorder(o Operand, layout device.Layout) Operand {
	r.t.Helper()
	if o.Spec.Layout == layout {
		return o
	}
	op := device.Reorder{To: o.Spec.DType}
	k := r.compile(op, []device.TensorSpec{o.Spec},
		[]device.TensorSpec{device.Spec(op.To, o.Spec.Shape...).With(layout)})
	if got := k.In()[0]; !got.Same(o.Spec) {
		r.t.Fatalf("reorder of %v to layout %d wants %v: a reorder must take its input as it lies", o.Spec, layout, got)
	}
	out := Operand{Spec: k.Out()[0], Region: r.Alloc(k.Out()[0].Size(), poison)}
	r.launch(op.Kind(), k, []Operand{o}, []Operand{out})
	r.checkPadding("reorder output", out)
	return out
}

// poison is the fill byte of fresh memory: NaN in every float type.
const poison = 0xff

// Do runs one op under the runner's policy and returns its outputs.
func (r *Runner) Do(op device.Op, in ...Operand) []Operand {
	r.t.Helper()
	asked := make([]device.TensorSpec, len(in))
	for i, o := range in {
		asked[i] = o.Spec
		if o.Spec.DType != tensor.Opaque {
			asked[i] = o.Spec.With(r.hint(o.Spec.Layout))
		}
	}
	out, err := op.Infer(asked)
	if err != nil {
		r.t.Fatalf("infer: %v", err)
	}
	for i := range out {
		if r.Policy != Pinned && out[i].DType != tensor.Opaque {
			out[i] = out[i].With(device.Any)
		}
	}
	k := r.compile(op, asked, out)
	if r.Policy == Settled {
		if !r.elsewhere {
			r.compile(op, k.In(), out)
		}
		again := r.compile(op, k.In(), k.Out())
		for i, s := range again.In() {
			if !s.Same(k.In()[i]) {
				r.t.Errorf("%s: input %d: asked for the %v it chose before, the kernel wants %v", op.Kind(), i,
					k.In()[i], s)
			}
		}
		k = again
	}
	bound := make([]Operand, len(in))
	for i, want := range k.In() {
		bound[i] = r.bring(op, i, in[i], want)
	}
	outputs := r.outputs(op, k, bound)
	r.launch(op.Kind(), k, bound, outputs)
	for i, o := range outputs {
		r.checkPadding(fmt.Sprintf("%s: output %d", op.Kind(), i), o)
	}
	return outputs
}

// hint returns the layout to request for an input in layout l.
func (r *Runner) hint(l device.Layout) device.Layout {
	if r.Policy == Carried || r.Policy == Pinned {
		return l
	}
	return device.Any
}

// bring returns an operand in the layout that the kernel requires.
func (r *Runner) bring(op device.Op, i int, o Operand, want device.TensorSpec) Operand {
	r.t.Helper()
	if o.Spec.DType != tensor.Opaque {
		o = r.Reorder(o, want.Layout)
	}
	if !o.Spec.Same(want) {
		r.t.Fatalf("%s: input %d lies as %v (%d bytes), the kernel wants %v (%d bytes)", op.Kind(), i, o.Spec,
			o.Spec.Size(), want, want.Size())
	}
	return o
}

// outputs returns memory for the outputs. An output uses the memory of an input if the op requires this, or if the
// kernel allows it and the policy is Shared. Otherwise it uses fresh memory.
func (r *Runner) outputs(op device.Op, k device.Kernel, in []Operand) []Operand {
	r.t.Helper()
	out := make([]Operand, len(k.Out()))
	for i, s := range k.Out() {
		out[i].Spec = s
	}
	for _, a := range device.Aliases(op) {
		out[a.Out].Region = in[a.In].Region
	}
	if r.Policy == Shared {
		taken := make([]bool, len(in))
		for _, a := range k.InPlace() {
			if a.Out < 0 || a.Out >= len(out) || a.In < 0 || a.In >= len(in) {
				r.t.Fatalf("%s: in place: got output %d with input %d, want operands of the kernel", op.Kind(), a.Out,
					a.In)
			}
			if out[a.Out].Region.Buffer != nil || taken[a.In] {
				continue
			}
			if out[a.Out].Spec.Size() != in[a.In].Spec.Size() {
				r.t.Fatalf("%s: in place: output %d of %d bytes with input %d of %d", op.Kind(), a.Out,
					out[a.Out].Spec.Size(), a.In, in[a.In].Spec.Size())
			}
			taken[a.In] = true
			copied := r.Alloc(in[a.In].Region.Bytes, poison) // other ops may still read the input
			r.write(copied, r.Bytes(in[a.In].Region))
			in[a.In].Region, out[a.Out].Region = copied, copied
		}
	}
	for i := range out {
		if out[i].Region.Buffer == nil {
			out[i].Region = r.Alloc(out[i].Spec.Size(), poison)
		}
	}
	return out
}

// compile compiles op and checks that the kernel matches the request.
func (r *Runner) compile(op device.Op, in, out []device.TensorSpec) device.Kernel {
	r.t.Helper()
	k, err := r.dev.Compile(op, in, out)
	if errors.Is(err, device.ErrUnsupported) && slices.Contains(r.Lacks, op.Kind()) {
		r.t.Skipf("%s has no %s: %v", r.dev.Info().Name, op.Kind(), err)
	}
	if err != nil {
		r.t.Fatalf("compile %s of %v to %v: %v", op.Kind(), in, out, err)
	}
	r.kernels = append(r.kernels, k)
	if err := errors.Join(answers("input", in, k.In(), false), answers("output", out, k.Out(), true)); err != nil {
		r.t.Fatalf("compile %s: %v", op.Kind(), err)
	}
	if k.Workspace() < 0 {
		r.t.Fatalf("compile %s: workspace of %d bytes", op.Kind(), k.Workspace())
	}
	for _, s := range slices.Concat(k.In(), k.Out()) {
		r.elsewhere = r.elsewhere || s.DType != tensor.Opaque && s.Layout != device.Plain
	}
	return k
}

// answers compares the specs that a kernel returns with the requested specs. If binding is set, the kernel must have
// the requested layouts, except for Any.
func answers(side string, asked, got []device.TensorSpec, binding bool) error {
	if len(asked) != len(got) {
		return fmt.Errorf("got %d %ss, want %d", len(got), side, len(asked))
	}
	for i, g := range got {
		a := asked[i]
		switch {
		case g.DType != a.DType || !g.Shape.Equal(a.Shape):
			return fmt.Errorf("%s %d: got %v, want the shape and type of %v", side, i, g, a)
		case g.Layout == device.Any:
			return fmt.Errorf("%s %d: got layout any, want the layout chosen", side, i)
		case binding && a.DType != tensor.Opaque && a.Layout != device.Any && g.Layout != a.Layout:
			return fmt.Errorf("%s %d: got layout %d, want the requested layout %d", side, i, g.Layout, a.Layout)
		case g.Size() <= 0:
			return fmt.Errorf("%s %d: got %v of %d bytes, want its size", side, i, g, g.Size())
		case g.DType != tensor.Opaque && g.Size() < g.Shape.Elements()*g.DType.Size():
			return fmt.Errorf("%s %d: got %v of %d bytes, too few for its elements", side, i, g, g.Size())
		}
	}
	return nil
}

// launch runs one kernel. The workspace contains arbitrary bytes.
func (r *Runner) launch(name string, k device.Kernel, in, out []Operand) {
	r.t.Helper()
	l := device.Launch{Name: name, Kernel: k}
	for _, o := range in {
		l.In = append(l.In, o.Region)
	}
	for _, o := range out {
		l.Out = append(l.Out, o.Region)
	}
	if n := k.Workspace(); n > 0 {
		l.Workspace = r.Alloc(n, poison)
	}
	r.RunSteps(device.Step{Launch: &l})
}

// RunSteps runs a program and waits for it.
func (r *Runner) RunSteps(steps ...device.Step) {
	r.t.Helper()
	p, err := r.dev.NewProgram(steps)
	if err != nil {
		r.t.Fatalf("new program: %v", err)
	}
	r.programs = append(r.programs, p)
	if err := r.stream.Run(p); err != nil {
		r.t.Fatalf("run: %v", err)
	}
	if err := r.stream.Sync(); err != nil {
		r.t.Fatalf("sync: %v", err)
	}
}

// checkPadding requires that the memory of o contains exactly the elements of its plain form, and otherwise only zeros.
func (r *Runner) checkPadding(what string, o Operand) {
	r.t.Helper()
	if r.NoValues || r.AnyPadding || o.Spec.DType == tensor.Opaque ||
		o.Spec.Size() == o.Spec.Shape.Elements()*o.Spec.DType.Size() {
		return
	}
	op := device.Reorder{To: o.Spec.DType}
	plainSpec := device.Spec(op.To, o.Spec.Shape...)
	k := r.compile(op, []device.TensorSpec{o.Spec}, []device.TensorSpec{plainSpec})
	p := Operand{Spec: plainSpec, Region: r.Alloc(plainSpec.Size(), poison)}
	r.launch(op.Kind(), k, []Operand{o}, []Operand{p})
	got, want := nonzeros(op.To, r.Bytes(o.Region)), nonzeros(op.To, r.Bytes(p.Region))
	if !slices.Equal(got, want) {
		r.t.Errorf("%s: %v in %d bytes: memory holds %d nonzero elements, its plain form %d: padding is not zero", what,
			o.Spec, o.Spec.Size(), len(got), len(want))
	}
}

// nonzeros returns the nonzero elements of raw memory as sorted bit patterns.
func nonzeros(dt tensor.DType, mem []byte) []uint64 {
	size := int(dt.Size())
	var out []uint64
	for i, v := range reference.Decode(dt, mem) {
		if v != 0 {
			var bits [8]byte
			copy(bits[:], mem[i*size:(i+1)*size])
			out = append(out, binary.NativeEndian.Uint64(bits[:]))
		}
	}
	slices.Sort(out)
	return out
}

// Exec runs one op on host tensors: it compiles the op for plain operands, runs it, and reads the outputs. An op that
// works in place changes copies of its operands. Opaque inputs must be outputs of an Exec on the same device.
func Exec(t conformance.TB, dev device.Device, op device.Op, inputs []Tensor) []Tensor {
	t.Helper()
	r := NewRunner(t, dev)
	defer r.Close()
	r.Policy = Pinned
	in := make([]Operand, len(inputs))
	for i, x := range inputs {
		in[i] = r.Upload(x)
	}
	var out []Tensor
	for _, o := range r.Do(op, in...) {
		out = append(out, r.Download(o))
	}
	return out
}
