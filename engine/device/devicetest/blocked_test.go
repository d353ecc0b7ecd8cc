package devicetest_test

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/internal/bookkeeping"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// blocked is the reference device with a private layout: it stores images (N, C, H, W) as (N, C/8, H, W, 8). If C is no
// multiple of 8, zeros fill the last block. The tests of the suite use this device with and without deliberate faults.
type blocked struct {
	*reference.Device
	fault   string
	threads int
	runs    int
	spare   device.Event
}

const (
	blockLayout = device.FirstPrivate
	block       = 8 // channels
)

// faults lists the deliberate faults of a blocked device. The suite must detect each fault in the part noticedBy. To
// save time, a child process runs only the cases that match oneCase.
var faults = []struct{ name, noticedBy, oneCase string }{
	{"garbage in padding", "values/pool", "avg_n3"},
	{"padding left as it was", "values/conv2d", "forward_n5"},
	{"one element wrong", "values/linear", "forward_n7"},
	{"sums in 16 bits", "values/conv2d", "forward_n5"},
	{"last channel forgotten", "values/batch_norm", "stats_n4"},
	{"result added to what was there", "values/move", "transpose"},
	{"depends on the run", "values/elementwise", "exp_"},
	{"in place where it cannot", "values/pool", "avg_n3"},
	{"NaN swallowed", "values/nan", ""},
	{"one optimizer bit wrong", "values/optim", "sgd_n100"},
	{"other layout when asked again", "values/pool", "avg_n3"},
	{"pinned layout ignored", "values/pool", "avg_n3"},
	{"reorder turns rows", "layouts", ""},
	{"depends on threads", "threads", "sum_squares"},
	{"memory not given back", "values/linear", "forward_n7"},
	{"memory not counted", "memory", ""},
	{"events complete at once", "streams", "fresh"},
	{"recording does not restart", "streams", "takes_back"},
	{"time is forgotten", "streams", "timed"},
	{"short regions accepted", "arguments", ""},
	{"foreign events accepted", "arguments", ""},
}

func isImage(op device.Op, i int, s device.TensorSpec, output bool) bool {
	if len(s.Shape) != 4 || !s.DType.IsFloat() {
		return false
	}
	switch op.(type) {
	case device.Conv2D, device.Conv2DDiffSrc:
		return output || i == 0
	case device.Conv2DDiffWeights:
		return !output
	case device.BatchNormStats, device.BatchNormApply, device.BatchNormDiffReduce, device.BatchNormDiffApply,
		device.MaxPool2D, device.MaxPool2DDiff,
		device.AvgPool2D, device.AvgPool2DDiff, device.GlobalAvgPool, device.GlobalAvgPoolDiff:
		return true
	}
	return false
}

// inBlocks returns s in the private layout.
func inBlocks(s device.TensorSpec) device.TensorSpec {
	s.Layout = blockLayout
	padded := (s.Shape[1] + block - 1) / block * block
	s.Bytes = int64(s.Shape[0]*padded*s.Shape[2]*s.Shape[3]) * s.DType.Size()
	return s
}

// blockedKernel contains a kernel that has plain operands.
type blockedKernel struct {
	device.Kernel
	op      device.Op
	in, out []device.TensorSpec
	inPlace []device.Alias
}

func (k *blockedKernel) In() []device.TensorSpec  { return k.in }
func (k *blockedKernel) Out() []device.TensorSpec { return k.out }
func (k *blockedKernel) InPlace() []device.Alias  { return k.inPlace }

func plainSpec(s device.TensorSpec) device.TensorSpec {
	if s.DType == tensor.Opaque {
		return s
	}
	return s.With(device.Plain)
}

func (d *blocked) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	plainIn, plainOut := slices.Clone(in), slices.Clone(out)
	for _, side := range [][]device.TensorSpec{plainIn, plainOut} {
		for i, s := range side {
			if s.Layout == blockLayout {
				side[i] = plainSpec(s)
			}
		}
	}
	inner, err := d.Device.Compile(op, plainIn, plainOut)
	if err != nil {
		return nil, err
	}
	k := &blockedKernel{Kernel: inner, op: op, in: inner.In(), out: inner.Out(), inPlace: inner.InPlace()}
	_, reorders := op.(device.Reorder)
	for i, s := range k.in {
		if reorders && in[i].Layout == blockLayout || isImage(op, i, s, false) &&
			!(d.fault == "other layout when asked again" && in[i].Layout == blockLayout) {
			k.in[i] = inBlocks(s)
		}
	}
	for i, s := range k.out {
		free := out[i].Layout == device.Any || d.fault == "pinned layout ignored"
		if out[i].Layout == blockLayout || free && isImage(op, i, s, true) || free && reorders &&
			in[i].Layout == blockLayout {
			k.out[i] = inBlocks(s)
		}
	}
	if d.fault == "in place where it cannot" && op.Kind() == "avg_pool2d" {
		k.inPlace = []device.Alias{{Out: 0, In: 0}}
	}
	k.inPlace = slices.DeleteFunc(k.inPlace, func(a device.Alias) bool {
		return k.in[a.In].Layout != k.out[a.Out].Layout && op.Kind() != "avg_pool2d"
	})
	return k, nil
}

// blockedProgram keeps its steps. For each launch, a run unpacks the inputs and packs the outputs.
type blockedProgram struct {
	steps  []device.Step
	closed bool
}

func (p *blockedProgram) Close() error {
	p.closed = true
	return nil
}

// NewProgram lets the reference device check a copy of the steps, in which every operand is plain.
func (d *blocked) NewProgram(steps []device.Step) (device.Program, error) {
	checked := slices.Clone(steps)
	for i, s := range steps {
		if d.fault == "foreign events accepted" && s.Launch == nil {
			checked[i] = device.Step{Record: d.spare}
		}
		if s.Launch == nil {
			continue
		}
		k, ok := s.Launch.Kernel.(*blockedKernel)
		if !ok {
			continue
		}
		l := *s.Launch
		l.Kernel = k.Kernel
		l.In, l.Out = slices.Clone(l.In), slices.Clone(l.Out)
		d.standIn(l.In, k.in)
		d.standIn(l.Out, k.out)
		checked[i].Launch = &l
	}
	p, err := d.Device.NewProgram(checked)
	if err != nil {
		return nil, err
	}
	return &blockedProgram{steps: slices.Clone(steps)}, p.Close()
}

// standIn replaces the regions of padded operands by regions of the plain size.
func (d *blocked) standIn(regions []device.Region, specs []device.TensorSpec) {
	for i := range min(len(regions), len(specs)) {
		if regions[i].Bytes == specs[i].Size() || d.fault == "short regions accepted" {
			regions[i].Bytes = plainSpec(specs[i]).Size()
		}
	}
}

func (d *blocked) NewEvent() (device.Event, error) {
	e, err := d.Device.NewEvent()
	if d.fault == "events complete at once" {
		e.(*bookkeeping.Event).Finish(0)
	}
	return e, err
}

func (d *blocked) Memory() (allocated, peak int64) {
	allocated, peak = d.Device.Memory()
	if d.fault == "memory not counted" {
		allocated = 0
	}
	return allocated, peak
}

type blockedStream struct {
	device.Stream
	dev *blocked
}

func (d *blocked) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return &blockedStream{Stream: s, dev: d}, err
}

func (s *blockedStream) Run(p device.Program) error {
	return s.run(p, func(int, time.Duration) {})
}

func (s *blockedStream) RunTimed(p device.Program, elapsed []time.Duration) error {
	if prog, ok := p.(*blockedProgram); ok && len(prog.steps) != len(elapsed) {
		return fmt.Errorf("run timed: elapsed: got %d entries, want %d", len(elapsed), len(prog.steps))
	}
	return s.run(p, func(i int, took time.Duration) {
		if s.dev.fault != "time is forgotten" {
			elapsed[i] += took
		}
	})
}

func (s *blockedStream) run(p device.Program, took func(int, time.Duration)) error {
	prog, ok := p.(*blockedProgram)
	if !ok {
		return fmt.Errorf("run: got a program of another device: %T", p)
	}
	if prog.closed {
		return fmt.Errorf("run: program is closed")
	}
	for _, st := range prog.steps {
		if st.Record != nil && s.dev.fault != "recording does not restart" {
			st.Record.(*bookkeeping.Event).Begin()
		}
	}
	err := s.Sync() // returns an error if the stream is closed
	for i := 0; err == nil && i < len(prog.steps); i++ {
		start := time.Now()
		switch st := prog.steps[i]; {
		case st.Record != nil:
			err = s.Record(st.Record)
		case st.Wait != nil:
			err = s.Wait(st.Wait)
		default:
			err = s.launch(*st.Launch)
		}
		took(i, time.Since(start))
	}
	return err
}

// launch unpacks the inputs from the private layout, runs the plain kernel, and packs the outputs.
func (s *blockedStream) launch(l device.Launch) error {
	d, k := s.dev, l.Kernel.(*blockedKernel)
	l.Kernel = k.Kernel
	in, out := slices.Clone(l.In), slices.Clone(l.Out)
	var temporary []device.Buffer
	place := func(spec device.TensorSpec) device.Region {
		b, err := d.Device.Alloc(plainSpec(spec).Size())
		if err != nil {
			panic(err) // the machine has no memory left
		}
		temporary = append(temporary, b)
		return device.Whole(b)
	}
	for i, spec := range k.in {
		if spec.Layout == blockLayout {
			in[i] = place(spec)
			unpack(in[i].Host(), l.In[i].Host(), spec)
		}
	}
	for i, spec := range k.out {
		if spec.Layout == blockLayout {
			out[i] = place(spec)
		}
	}
	packed := l.Out
	before := make([][]byte, len(out))
	for i := range out {
		before[i] = slices.Clone(out[i].Host())
	}
	l.In, l.Out = in, out
	p, err := d.Device.NewProgram([]device.Step{{Launch: &l}})
	if err != nil {
		return err
	}
	if err := s.Stream.Run(p); err != nil {
		return err
	}
	for i, spec := range k.out {
		d.spoil(k.op, i, out[i].Host(), before[i], spec)
		if spec.Layout == blockLayout {
			d.pack(k.op, packed[i].Host(), out[i].Host(), spec)
		}
	}
	if d.fault == "memory not given back" && k.op.Kind() == "linear" {
		temporary = append(temporary[:0:0], temporary...)
		if _, err := d.Device.Alloc(64); err != nil {
			return err
		}
	}
	for _, b := range temporary {
		if err := b.Free(); err != nil {
			return err
		}
	}
	return p.Close()
}

// eachElement calls f for each element of images. plain and blocked are the indices of the element in both layouts.
func eachElement(s device.TensorSpec, f func(plain, blocked int)) {
	n, c, pixels := s.Shape[0], s.Shape[1], s.Shape[2]*s.Shape[3]
	blocks := (c + block - 1) / block
	for i := range n * c * pixels {
		image, channel, pixel := i/(c*pixels), i/pixels%c, i%pixels
		f(i, ((image*blocks+channel/block)*pixels+pixel)*block+channel%block)
	}
}

func unpack(plain, packed []byte, s device.TensorSpec) {
	size := int(s.DType.Size())
	eachElement(s, func(i, j int) { copy(plain[i*size:(i+1)*size], packed[j*size:]) })
}

func (d *blocked) pack(op device.Op, packed, plain []byte, s device.TensorSpec) {
	_, reorders := op.(device.Reorder)
	if d.fault != "padding left as it was" || reorders {
		clear(packed)
	}
	if d.fault == "garbage in padding" && !reorders {
		for i := range packed {
			packed[i] = 0x3f
		}
	}
	size := int(s.DType.Size())
	eachElement(s, func(i, j int) { copy(packed[j*size:(j+1)*size], plain[i*size:(i+1)*size]) })
}

// spoil applies the fault of the device to the result of a launch, which is in plain memory.
func (d *blocked) spoil(op device.Op, output int, mem, before []byte, s device.TensorSpec) {
	if !s.DType.IsFloat() {
		return
	}
	values := reference.Decode(s.DType, mem)
	last := len(values) - 1
	switch d.fault {
	case "one element wrong":
		values[last/2] += 1e-3
	case "sums in 16 bits":
		values = reference.Decode(tensor.BF16, reference.Encode(tensor.BF16, values))
	case "last channel forgotten":
		if op.Kind() == "batch_norm_stats" && len(s.Shape) == 2 && s.Shape[1] > 1 {
			values[last] = 0
		}
	case "result added to what was there":
		for i, v := range reference.Decode(s.DType, before) {
			values[i] += v
		}
	case "depends on the run":
		d.runs++
		values[0] += math.Copysign(1e-9, float64(d.runs%2)-0.5)
		if d.runs%2 == 0 {
			values[0] = math.Nextafter(values[0], 0)
			values[last] *= 1 + 1e-7
		}
	case "NaN swallowed":
		for i, v := range values {
			if math.IsNaN(v) {
				values[i] = 0
			}
		}
	case "one optimizer bit wrong":
		if op.Kind() == "sgd" && output == 0 {
			values[0] = float64(math.Nextafter32(float32(values[0]), 9))
		}
	case "reorder turns rows":
		if op.Kind() == "reorder" && len(s.Shape) == 4 && s.Layout == blockLayout {
			slices.Reverse(values)
		}
	case "depends on threads":
		if op.Kind() == "sum_squares" {
			values[0] *= 1 + float64(d.threads)*1e-15
		}
	default:
		return
	}
	copy(mem, reference.Encode(s.DType, values))
}
