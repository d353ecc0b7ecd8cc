package devicetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Objects of another device. The device under test must refuse each of them.
type (
	foreignBuffer  struct{}
	foreignKernel  struct{}
	foreignProgram struct{}
	foreignEvent   struct{}
)

func (foreignBuffer) Bytes() int64            { return 1 << 20 }
func (foreignBuffer) Host() []byte            { return nil }
func (foreignBuffer) Free() error             { return nil }
func (foreignKernel) In() []device.TensorSpec { return []device.TensorSpec{device.Spec(tensor.F32, 4)} }
func (foreignKernel) Out() []device.TensorSpec {
	return []device.TensorSpec{device.Spec(tensor.F32, 4)}
}
func (foreignKernel) Workspace() int64                 { return 0 }
func (foreignKernel) InPlace() []device.Alias          { return nil }
func (foreignKernel) Close() error                     { return nil }
func (foreignProgram) Close() error                    { return nil }
func (foreignEvent) Done() bool                        { return false }
func (foreignEvent) WaitHost(time.Duration) error      { return nil }
func (foreignEvent) Reset() error                      { return nil }
func (foreignEvent) Complete() error                   { return nil }
func (foreignEvent) Close() error                      { return nil }
func f32(shape ...int) device.TensorSpec               { return device.Spec(tensor.F32, shape...) }
func specs(s ...device.TensorSpec) []device.TensorSpec { return s }

// badCompile is a compile request that every device must refuse. The error must contain every word in says.
type badCompile struct {
	name    string
	op      device.Op
	in, out []device.TensorSpec
	says    []string
}

var badCompiles = []badCompile{
	{"no op", nil, specs(f32(4)), specs(f32(4)), nil},
	{"too few inputs", device.Linear{}, specs(f32(2, 3)), specs(f32(2, 4)), []string{"linear", "got 1"}},
	{"no outputs", device.Linear{}, specs(f32(2, 3), f32(4, 3)), nil, []string{"linear", "output", "got 0", "want 1"}},
	{"weight of other channels", device.Conv2D{Window: unitWindow, Groups: 1}, specs(f32(1, 3, 4, 4), f32(8, 4, 1, 1)),
		specs(f32(1, 8, 4, 4)),
		[]string{"conv2d", "weight", "got", "want"}},
	{"weight of another type", device.Linear{}, specs(f32(2, 3), device.Spec(tensor.BF16, 4, 3)), specs(f32(2, 4)),
		[]string{"linear", "weight", "bf16", "f32"}},
	{"groups that do not divide", device.Conv2D{Window: unitWindow, Groups: 2}, specs(f32(1, 3, 4, 4), f32(8, 1, 1, 1)),
		specs(f32(1, 8, 4, 4)),
		[]string{"conv2d", "groups", "got 2"}},
	{"groups of zero", device.Conv2D{Window: unitWindow}, specs(f32(1, 3, 4, 4), f32(8, 3, 1, 1)),
		specs(f32(1, 8, 4, 4)), []string{"conv2d", "groups"}},
	{"stride of zero", device.MaxPool2D{Kernel: [2]int{2, 2}}, specs(f32(1, 3, 4, 4)), specs(f32(1, 3, 2, 2)),
		[]string{"max_pool2d", "stride"}},
	{"window larger than the image", device.AvgPool2D{Window: unitWindow, Kernel: [2]int{5, 5}}, specs(f32(1, 3, 4, 4)),
		specs(f32(1, 3, 1, 1)),
		[]string{"avg_pool2d", "larger"}},
	{"labels of real numbers", device.SoftmaxCrossEntropy{}, specs(f32(2, 3), f32(2)),
		specs(f32(2), device.Spec(tensor.I32, 2), f32(2)),
		[]string{"softmax_cross_entropy", "labels", "f32", "i32"}},
	{"mixed samples without second labels", device.SoftmaxCrossEntropy{Mixed: true},
		specs(f32(2, 3), device.Spec(tensor.I32, 2)),
		specs(f32(2), device.Spec(tensor.I32, 2), f32(2)), []string{"softmax_cross_entropy", "got 2", "want [4]"}},
	{"second labels of real numbers", device.SoftmaxCrossEntropy{Mixed: true},
		specs(f32(2, 3), device.Spec(tensor.I32, 2), f32(2), f32(2)),
		specs(f32(2), device.Spec(tensor.I32, 2), f32(2)),
		[]string{"softmax_cross_entropy", "second labels", "f32", "i32"}},
	{"label smoothing of 1", device.SoftmaxCrossEntropy{LabelSmoothing: 1},
		specs(f32(2, 3), device.Spec(tensor.I32, 2)),
		specs(f32(2), device.Spec(tensor.I32, 2), f32(2)), []string{"softmax_cross_entropy", "smoothing"}},
	{"dropout of everything", device.Dropout{P: 1},
		specs(f32(2, 3), device.Spec(tensor.I64, 2), device.Spec(tensor.U32, 2)), specs(f32(2, 3)),
		[]string{"dropout", "got 1"}},
	{"positions beyond the table", device.Embedding{To: tensor.F32},
		specs(device.Spec(tensor.I32, 2, 9), f32(5, 4), f32(8, 4)), specs(f32(2, 9, 4)),
		[]string{"embedding", "positions", "8", "9"}},
	{"tokens of real numbers", device.Embedding{To: tensor.F32}, specs(f32(2, 9), f32(5, 4)), specs(f32(2, 9, 4)),
		[]string{"embedding", "tokens", "f32", "i32"}},
	{"gamma of other rows", device.LayerNorm{}, specs(f32(2, 3), f32(4), f32(3)), specs(f32(2, 3), f32(2), f32(2)),
		[]string{"layer_norm", "gamma", "(4)", "(3)"}},
	{"GELU by another function", device.BiasGELU{Func: device.Exp}, specs(f32(2, 3), f32(3)), specs(f32(2, 3)),
		[]string{"bias_gelu", "gelu"}},
	{"heads that do not divide", device.Attention{Heads: 4, Packed: true}, specs(f32(1, 2, 18)),
		specs(f32(1, 2, 6), f32(1, 4, 2)), []string{"attention", "heads", "got 4", "6"}},
	{"attention without q, k and v in its rows", device.Attention{Heads: 1, Packed: true}, specs(f32(1, 2, 8)),
		specs(f32(1, 2, 8), f32(1, 1, 2)),
		[]string{"attention", "8", "multiple of 3"}},
	{"heads of k and v that do not divide", device.Attention{Heads: 3, KVHeads: 2},
		specs(f32(1, 2, 6), f32(1, 2, 4), f32(1, 2, 4)), specs(f32(1, 2, 6), f32(1, 3, 2)),
		[]string{"attention", "heads of k and v", "got 2", "divisor of the 3"}},
	{"more heads of k and v than of q", device.Attention{Heads: 2, KVHeads: 4},
		specs(f32(1, 2, 6), f32(1, 2, 12), f32(1, 2, 12)), specs(f32(1, 2, 6), f32(1, 2, 2)),
		[]string{"attention", "heads of k and v", "got 4"}},
	{"k of other channels", device.Attention{Heads: 4, KVHeads: 2}, specs(f32(1, 2, 8), f32(1, 2, 8), f32(1, 2, 4)),
		specs(f32(1, 2, 8), f32(1, 4, 2)),
		[]string{"attention", "k", "(1, 2, 8)", "(1, 2, 4)"}},
	{"shared heads of a packed operand", device.Attention{Heads: 2, KVHeads: 1, Packed: true}, specs(f32(1, 2, 12)),
		specs(f32(1, 2, 4), f32(1, 2, 2)),
		[]string{"attention", "packed", "got 1", "2"}},
	{"attention step with heads that do not divide", device.AttentionStep{Heads: 4}, step(1, 6, 6), specs(f32(1, 1, 6)),
		[]string{"attention_step", "heads", "got 4", "6"}},
	{"attention step with heads of k and v that do not divide", device.AttentionStep{Heads: 3, KVHeads: 2},
		step(1, 6, 4), specs(f32(1, 1, 6)), []string{"attention_step", "heads of k and v", "got 2"}},
	{"attention step of two positions", device.AttentionStep{Heads: 1}, step(2, 6, 6), specs(f32(1, 2, 2)),
		[]string{"attention_step", "q"}},
	{"attention step with a past of other channels", device.AttentionStep{Heads: 2, KVHeads: 1}, step(1, 6, 6),
		specs(f32(1, 1, 2)), []string{"attention_step", "k", "(1, 1, 3)"}},
	{"attention without lengths", device.Attention{Heads: 1, Packed: true, Lengths: true}, specs(f32(1, 2, 6)),
		specs(f32(1, 2, 2), f32(1, 1, 2)),
		[]string{"attention", "got 1", "want [2]"}},
	{"vocabulary of other channels", device.LinearCrossEntropy{},
		specs(f32(2, 3), f32(9, 4), device.Spec(tensor.I32, 2)), specs(f32(2), device.Spec(tensor.I32, 2), f32(2)),
		[]string{"linear_cross_entropy", "weight", "(9, 4)", "(9, 3)"}},
	{"unknown function", device.Unary{Func: 99}, specs(f32(4)), specs(f32(4)), []string{"unary", "99"}},
	{"repetition that does not fit", device.Binary{Func: device.Add}, specs(f32(4), f32(3)), specs(f32(4)),
		[]string{"binary", "(3)", "(4)"}},
	{"gamma of other channels", device.BatchNormApply{}, specs(f32(1, 3, 2, 2), f32(1, 3), f32(1, 3), f32(4), f32(3)),
		specs(f32(1, 3, 2, 2)),
		[]string{"batch_norm_apply", "gamma", "(4)", "(3)"}},
	{"segments beyond the end", device.SGD{Segments: []device.Segment{{Offset: 2, Length: 9}}},
		specs(f32(4), f32(3), f32(10), f32(10)), specs(f32(10)),
		[]string{"sgd", "segment", "10"}},
	{"averages of another length", device.MovingAverage{}, specs(f32(1), f32(3), f32(10), f32(11)), specs(f32(10)),
		[]string{"moving_average", "value", "(11)"}},
	{"segments that overlap", device.AdamW{Segments: []device.Segment{{Length: 5}, {Offset: 4, Length: 1}}},
		specs(f32(4), f32(3), f32(10), f32(10), f32(10), f32(10)), specs(f32(10), f32(10), f32(10)),
		[]string{"adamw", "segment 1"}},
	{"output of another shape", device.Unary{Func: device.Neg}, specs(f32(4)), specs(f32(5)),
		[]string{"unary", "output 0", "(5)", "(4)"}},
	{"output of another type", device.Unary{Func: device.Neg}, specs(f32(4)), specs(device.Spec(tensor.BF16, 4)),
		[]string{"unary", "output 0", "bf16", "f32"}},
	{"unknown input layout", device.Unary{Func: device.Neg}, specs(f32(4).With(987654)), specs(f32(4)),
		[]string{"unary", "put 0", "layout"}},
	{"unknown output layout", device.Unary{Func: device.Neg}, specs(f32(4)), specs(f32(4).With(987654)),
		[]string{"unary", "put 0", "layout"}},
	{"extent of zero", device.Unary{Func: device.Neg}, specs(f32(0, 4)), specs(f32(0, 4)),
		[]string{"unary", "input 0", "got 0"}},
	{"too many dimensions", device.Unary{Func: device.Neg}, specs(f32(1, 1, 1, 1, 1, 1, 1)),
		specs(f32(1, 1, 1, 1, 1, 1, 1)), []string{"unary", "input 0", "7"}},
	{"no element type", device.Unary{Func: device.Neg}, specs(device.Spec(tensor.Invalid, 4)),
		specs(device.Spec(tensor.Invalid, 4)), []string{"unary", "input 0", "invalid"}},
}

var unitWindow = device.Window{Stride: [2]int{1, 1}, Dilation: [2]int{1, 1}}

// refused runs f and requires an error that contains every word in says.
func refused(t conformance.T, f func() error, says ...string) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("panic: %v", p)
		}
	}()
	err := f()
	if err == nil {
		t.Error("no error")
		return
	}
	if errors.Is(err, device.ErrUnsupported) || errors.Is(err, device.ErrDevice) {
		t.Errorf("%v: want the error of a wrong argument, not %v", err, errors.Unwrap(err))
	}
	for _, word := range says {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
}

func runArguments(t conformance.T, open Opener, caps Caps) {
	dev := opened(t, open, device.Options{})
	for _, c := range badCompiles {
		t.Run("compile/"+c.name, func(t conformance.T) {
			refused(t, func() error {
				k, err := dev.Compile(c.op, c.in, c.out)
				if err == nil {
					err = k.Close()
				}
				return err
			}, c.says...)
		})
	}
	t.Run("program", func(t conformance.T) { badPrograms(t, dev, caps) })
	t.Run("stream", func(t conformance.T) { badCalls(t, dev) })
	if !caps.NoValues { // asynchronous devices return the error only when the host waits for the stream
		t.Run("ids", func(t conformance.T) { badIDs(t, dev, caps) })
	}
}

func badPrograms(t conformance.T, dev device.Device, caps Caps) {
	r := NewRunner(t, dev)
	defer r.Close()
	x := r.Upload(Of(tensor.F32, tensor.Shape{4}, 1, 2, 3, 4))
	_, good := r.prepare(device.Unary{Func: device.Neg}, x)
	freed := mustAlloc(t, dev.Alloc, 16)
	mustFree(t, freed)
	event, err := dev.NewEvent()
	must(t, err)
	with := func(change func(l *device.Launch)) device.Step {
		l := *good.Launch
		l.In, l.Out = append([]device.Region(nil), l.In...), append([]device.Region(nil), l.Out...)
		change(&l)
		return device.Step{Launch: &l}
	}
	in := good.Launch.In[0]
	for _, c := range []struct {
		name string
		step device.Step
		says []string
	}{
		{"a step of nothing", device.Step{}, []string{"step 1", "got 0", "want exactly 1"}},
		{"a step of two things", device.Step{Launch: good.Launch, Record: event},
			[]string{"step 1", "got 2", "want exactly 1"}},
		{"an event of another device", device.Step{Record: foreignEvent{}}, []string{"step 1", "event"}},
		{"a wait for an event of another device", device.Step{Wait: foreignEvent{}}, []string{"step 1", "event"}},
		{"no kernel", with(func(l *device.Launch) { l.Kernel = nil }), []string{"step 1", "kernel"}},
		{"a kernel of another device", with(func(l *device.Launch) { l.Kernel = foreignKernel{} }),
			[]string{"step 1", "kernel"}},
		{"too few inputs", with(func(l *device.Launch) { l.In = nil }), []string{"step 1", "got 0", "want 1"}},
		{"too many outputs", with(func(l *device.Launch) { l.Out = append(l.Out, l.Out[0]) }),
			[]string{"step 1", "got", "2", "want"}},
		{"no memory", with(func(l *device.Launch) { l.In[0] = device.Region{} }),
			[]string{"step 1", "input 0", "without a buffer"}},
		{
			"memory of another device",
			with(func(l *device.Launch) { l.In[0] = device.Region{Buffer: foreignBuffer{}, Bytes: 16} }),
			[]string{"step 1", "input 0", "buffer"}},
		{"freed memory", with(func(l *device.Launch) { l.Out[0] = device.Region{Buffer: freed, Bytes: 16} }),
			[]string{"step 1", "output 0", "freed"}},
		{"memory beyond its buffer", with(func(l *device.Launch) { l.In[0].Offset = in.Buffer.Bytes() - 15 }),
			[]string{"step 1", "input 0", "outside"}},
		{"memory before its buffer", with(func(l *device.Launch) { l.In[0].Offset = -16 }),
			[]string{"step 1", "input 0", "outside"}},
		{"an offset that overflows", with(func(l *device.Launch) { l.In[0].Offset = 1<<63 - 8 }),
			[]string{"step 1", "input 0", "outside"}},
		{"too little input", with(func(l *device.Launch) { l.In[0].Bytes = 12 }),
			[]string{"step 1", "input 0", "12", "16"}},
		{"too little output", with(func(l *device.Launch) { l.Out[0].Bytes = 12 }),
			[]string{"step 1", "output 0", "12", "16"}},
	} {
		t.Run(c.name, func(t conformance.T) {
			refused(t, func() error {
				p, err := dev.NewProgram([]device.Step{good, c.step})
				if err == nil {
					err = p.Close()
				}
				return err
			}, c.says...)
		})
	}
	must(t, event.Close())
	t.Run("too little workspace", func(t conformance.T) { badWorkspace(t, dev, caps) })
}

// badWorkspace tests launches with wrong workspaces, for a kernel that needs a workspace.
func badWorkspace(t conformance.T, dev device.Device, caps Caps) {
	r := NewRunner(t, dev)
	r.Lacks = caps.Lacks
	defer r.Close()
	for _, s := range convShapes {
		src, weight := f32(s.n, s.c, s.h, s.w), f32(s.o, s.c/s.op().Groups, s.kernel[0], s.kernel[1])
		out, err := s.op().Infer(specs(src, weight))
		must(t, err)
		k := r.compile(s.op(), specs(src.With(device.Any), weight.With(device.Any)), specs(out[0].With(device.Any)))
		if k.Workspace() < 2 {
			continue
		}
		l := device.Launch{Name: s.String(), Kernel: k, Workspace: r.Alloc(k.Workspace()-1, 0)}
		for _, in := range k.In() {
			l.In = append(l.In, r.Alloc(in.Size(), 0))
		}
		l.Out = []device.Region{r.Alloc(k.Out()[0].Size(), 0)}
		refused(t, func() error {
			p, err := dev.NewProgram([]device.Step{{Launch: &l}})
			if err == nil {
				err = p.Close()
			}
			return err
		}, "workspace", fmt.Sprint(k.Workspace()))
		return
	}
	t.Skip("no kernel here needs a workspace")
}

func badCalls(t conformance.T, dev device.Device) {
	r := NewRunner(t, dev)
	defer r.Close()
	a, b := r.Alloc(100, 0), r.Alloc(50, 0)
	freed := mustAlloc(t, dev.Alloc, 100)
	mustFree(t, freed)
	p, err := dev.NewProgram(nil)
	must(t, err)
	closed, err := dev.NewProgram(nil)
	must(t, err)
	must(t, closed.Close())
	gone, err := dev.NewStream()
	must(t, err)
	must(t, gone.Close())
	foreign := device.Region{Buffer: foreignBuffer{}, Bytes: 100}
	for _, c := range []struct {
		name string
		call func() error
		says []string
	}{
		{"a program of another device", func() error { return r.stream.Run(foreignProgram{}) },
			[]string{"run", "program"}},
		{"no program", func() error { return r.stream.Run(nil) }, []string{"run", "program"}},
		{"a closed program", func() error { return r.stream.Run(closed) }, []string{"run", "closed"}},
		{"times for too many steps", func() error { return r.stream.RunTimed(p, make([]time.Duration, 1)) },
			[]string{"elapsed", "got 1"}},
		{"a copy to another device", func() error { return r.stream.Copy(foreign, a) }, []string{"copy", "dst"}},
		{"a copy from another device", func() error { return r.stream.Copy(a, foreign) }, []string{"copy", "src"}},
		{"a copy into too little", func() error { return r.stream.Copy(b, a) }, []string{"copy", "dst", "50", "100"}},
		{
			"a copy beyond the end",
			func() error { return r.stream.Copy(a, device.Region{Buffer: b.Buffer, Offset: 1, Bytes: 50}) },
			[]string{"copy", "src", "outside"}},
		{"a copy from freed memory", func() error { return r.stream.Copy(a, device.Region{Buffer: freed, Bytes: 100}) },
			[]string{"copy", "src", "freed"}},
		{"a copy from nothing", func() error { return r.stream.Copy(a, device.Region{}) },
			[]string{"copy", "src", "without a buffer"}},
		{"recording an event of another device", func() error { return r.stream.Record(foreignEvent{}) },
			[]string{"record", "event"}},
		{"recording nothing", func() error { return r.stream.Record(nil) }, []string{"record", "event"}},
		{"waiting for an event of another device", func() error { return r.stream.Wait(foreignEvent{}) },
			[]string{"wait", "event"}},
		{"a closed stream", func() error { return gone.Run(p) }, []string{"closed"}},
	} {
		t.Run(c.name, func(t conformance.T) { refused(t, c.call, c.says...) })
	}
	must(t, p.Close())
}

// step returns the operands of an AttentionStep of one sample, with t new positions (only 1 is valid) and two cached
// positions.
func step(t, channels, shared int) []device.TensorSpec {
	return specs(f32(1, t, channels), f32(1, t, shared), f32(1, t, shared), f32(1, 2, shared), f32(1, 2, shared),
		device.Spec(tensor.I32, 1))
}
