package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// pass is a plan with the host memory of its inputs and outputs.
type pass struct {
	plan   *plan.Plan
	joined *gradsync.Pass // the plan with its exchanges between ranks; nil for a single rank
	idle   bool           // the share is 0, so the pass only takes part in exchanges between ranks

	predicts bool // the graph outputs logits
	sampled  bool // the task has a further target for each sample

	classWeights []float64 // of a training pass: Options.ClassWeights

	slots       int // number of micro-batches whose results the host holds at a time
	host        device.Buffer
	batchBytes  int64 // bytes at the start of host for the inputs of a batch
	resultBytes int64 // bytes of one slot of results
	inputs      map[string]transfer
	results     []transfer // copies from the device to the first slot: all outputs
	loss        transfer
	position    transfer
	perSample   [2]transfer // loss and top-k position of the further targets of samples
	logits      transfer
	targets     int      // number of targets of a sample
	positions   int      // number of positions of a sample; 0: all positions of the fields of a batch
	n           int      // number of samples of a full micro-batch
	fields      []string // names of the inputs that a batch fills
}

// transfer pairs a region of device memory with its copy in host memory, its host twin.
type transfer struct {
	dev, host device.Region
	spec      device.TensorSpec
}

// twinUnit is the alignment of host twins, in bytes: a cache line.
const twinUnit = 64

// in returns the bytes of the host twin in host, a buffer with the layout of the pass's host memory.
func (t transfer) in(host []byte) []byte { return host[t.host.Offset:][:t.host.Bytes] }

// bind assigns memory to the plan, connects the plan to other ranks if sync is not nil, and lays out the host twins.
func (p *pass) bind(dev device.Device, arena device.Region, state *plan.State, sync *gradsync.Sync) (err error) {
	if sync != nil {
		p.joined, err = sync.Bind(p.plan, arena)
	} else {
		err = p.plan.Bind(arena, state)
	}
	if err != nil {
		return err
	}
	twins, total, err := p.twins()
	if err != nil {
		return err
	}
	if p.host, err = dev.AllocHost(max(total, 1)); err != nil {
		return fmt.Errorf("replica: allocate %d bytes of host memory: %w", total, err)
	}
	p.inputs = map[string]transfer{}
	for name, t := range twins {
		t.host.Buffer = p.host
		switch name {
		case "loss":
			p.loss = t
		case "position":
			p.position = t
		case "logits":
			p.logits = t
		case sampleLoss:
			p.perSample[0] = t
		case samplePosition:
			p.perSample[1] = t
		default:
			p.inputs[name] = t
		}
	}
	if !p.idle {
		p.results = []transfer{p.loss, p.position}
		if p.predicts {
			p.results = append(p.results, p.logits)
		}
		if p.sampled {
			p.results = append(p.results, p.perSample[:]...)
		}
		p.n = p.loss.spec.Shape[0] / p.targets
	}
	return nil
}

// twins returns the plan's inputs and outputs, each with the position of its host twin. The result total is the size of
// the host buffer in bytes. The inputs of a batch come first in the buffer, the slots of results last.
func (p *pass) twins() (all map[string]transfer, total int64, err error) {
	all = map[string]transfer{}
	add := func(name string, region device.Region, spec device.TensorSpec, err error) error {
		if err == nil {
			all[name] = transfer{dev: region, host: device.Region{Offset: total, Bytes: region.Bytes}, spec: spec}
			total += roundUp(region.Bytes, twinUnit)
		}
		return err
	}
	for _, ofBatch := range []bool{true, false} {
		for _, name := range p.plan.InputNames() {
			if name == gradsync.SamplesInput || isField(name) != ofBatch {
				continue // gradsync writes this input
			}
			if ofBatch {
				p.fields = append(p.fields, name)
			}
			region, spec, err := p.plan.Input(name)
			if err := add(name, region, spec, err); err != nil {
				return nil, 0, err
			}
		}
		if ofBatch {
			p.batchBytes = total
		}
	}
	inputs := total
	for _, name := range p.outputs() {
		region, spec, err := p.plan.Output(name)
		if err := add(name, region, spec, err); err != nil {
			return nil, 0, err
		}
	}
	p.resultBytes = total - inputs
	return all, inputs + p.resultBytes*int64(max(p.slots, 1)), nil
}

func (p *pass) outputs() []string {
	if p.idle {
		return nil
	}
	names := []string{"loss", "position"}
	if p.predicts {
		names = append(names, "logits")
	}
	if p.sampled {
		names = append(names, sampleLoss, samplePosition)
	}
	return names
}

// Outputs of tasks with a further target for each sample.
const (
	sampleLoss     = "sample_loss"
	samplePosition = "sample_position"
)

func (p *pass) forward(s device.Stream) error {
	if p.joined != nil {
		return p.joined.Forward(s)
	}
	return p.plan.Forward(s)
}

// backward runs the backward pass. If last is true, the sums over ranks start during the pass.
func (p *pass) backward(s device.Stream, last bool) error {
	if p.joined != nil {
		return p.joined.Backward(s, last)
	}
	return p.plan.Backward(s)
}

// free frees the plan and its host memory.
func (p *pass) free() error {
	err := p.plan.Free()
	if p.host != nil {
		err = errors.Join(err, p.host.Free())
	}
	p.host = nil
	return err
}

// Graph inputs that the trainer fills.
const (
	scaleInput       = "scale"        // (1): factor of the loss of every target
	sampleScaleInput = "sample_scale" // (1): factor of the loss of every further target of a sample
	keyInput         = "key"          // (2), u32: dropout key of this epoch

	// classWeightInput contains the factor of the loss of every target. It is computed from the labels of a batch, so
	// it counts as a field of the batch.
	classWeightInput = "class_weight" // (N)
)

// isField reports whether a batch fills the graph input.
func isField(input string) bool {
	return input != scaleInput && input != sampleScaleInput && input != keyInput && input != gradsync.SamplesInput
}

// load copies a batch to the device.
func (p *pass) load(s device.Stream, b *data.Batch) error {
	if err := p.fill(b, p.host.Host()); err != nil || p.idle {
		return err
	}
	return p.send(s, p.fields...)
}

// targetsOf returns the number of targets of a batch that contribute to the loss.
func targetsOf(b *data.Batch) (count int) {
	for _, label := range data.Values[int32](b, task.Labels) {
		if label >= 0 {
			count++
		}
	}
	return count
}

// fill writes a batch to host, which has the layout of the host twins. If the batch has fewer samples than the plan,
// fill pads the batch. The loss ignores the padding.
func (p *pass) fill(b *data.Batch, host []byte) error {
	if b.N > p.n {
		return fmt.Errorf("replica: got a batch of %d samples, want at most %d", b.N, p.n)
	}
	if p.idle {
		return nil
	}
	filled := 0
	for f, field := range b.Fields {
		to, ok := p.inputs[field.Name]
		if !ok && field.Name == data.IDs {
			continue // evaluation needs no ids
		}
		if !ok {
			return fmt.Errorf("replica: the batch has the field %s, which is not an input of the model", field.Name)
		}
		filled++
		if err := to.fill(host, field, b.Bytes(f), p.n, p.positions); err != nil {
			return err
		}
	}
	if t, ok := p.inputs[classWeightInput]; ok {
		filled++
		if err := t.fillWeights(host, data.Values[int32](b, task.Labels), p.classWeights); err != nil {
			return err
		}
	}
	if filled != len(p.fields) {
		return fmt.Errorf("replica: the batch has the fields %s, want also %s", fieldNames(b),
			strings.Join(p.missing(b), ", "))
	}
	return nil
}

// fillWeights writes the weight of the class of each label to host, and 0 for labels that do not count and for padding.
func (t transfer) fillWeights(host []byte, labels []int32, weights []float64) error {
	dst, size := t.in(host), int(t.spec.DType.Size())
	clear(dst)
	for i, label := range labels {
		if label < 0 {
			continue
		}
		if int(label) >= len(weights) {
			return fmt.Errorf("replica: got label %d, want one of the %d classes that have weights", label,
				len(weights))
		}
		if size == 8 {
			binary.LittleEndian.PutUint64(dst[i*size:], math.Float64bits(weights[label]))
		} else {
			binary.LittleEndian.PutUint32(dst[i*size:], math.Float32bits(float32(weights[label])))
		}
	}
	return nil
}

// fill writes the elements of a field to host, and pads them to n samples. If positions is not 0, fill writes only the
// first positions of each sample.
func (t transfer) fill(host []byte, field data.Field, src []byte, n, positions int) error {
	dst := t.in(host)
	if positions > 0 && field.PerPosition {
		return t.fillStart(dst, field, src, n, positions)
	}
	if t.spec.DType == tensor.F64 && field.DType == tensor.F32 {
		for i := 0; i < len(src); i += 4 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(src[i:]))
			binary.LittleEndian.PutUint64(dst[2*i:], math.Float64bits(float64(v)))
		}
		return nil // the loss ignores the missing samples
	}
	if want := n * field.Bytes(); t.spec.DType != field.DType || len(dst) != want {
		return fmt.Errorf("replica: got %[2]d bytes of %[3]v for field %[1]s of a batch, want %[4]d bytes of %[5]v",
			field.Name, want, field.DType, len(dst), t.spec.DType)
	}
	rest := dst[copy(dst, src):]
	for i := range rest {
		rest[i] = field.Pad
	}
	return nil
}

// fillStart writes the first positions of each sample to dst, and pads them to n samples.
func (t transfer) fillStart(dst []byte, field data.Field, src []byte, n, positions int) error {
	full := field.Bytes()
	part := full / field.Shape[0] * positions
	if want := n * part; t.spec.DType != field.DType || len(dst) != want {
		return fmt.Errorf(
			"replica: got %[3]d bytes of %[4]v for %[1]d positions of field %[2]s, want %[5]d bytes of %[6]v",
			positions, field.Name, want, field.DType, len(dst), t.spec.DType)
	}
	for ; len(src) > 0; src, dst = src[full:], dst[part:] {
		copy(dst[:part], src)
	}
	for i := range dst {
		dst[i] = field.Pad
	}
	return nil
}

// fieldNames returns the names of a batch's fields as one text.
func fieldNames(b *data.Batch) string {
	var names []string
	for _, f := range b.Fields {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}

// missing returns the names of the inputs that a batch lacks.
func (p *pass) missing(b *data.Batch) (names []string) {
	for _, name := range p.fields {
		if !slices.ContainsFunc(b.Fields, func(f data.Field) bool { return f.Name == name }) {
			names = append(names, name)
		}
	}
	return names
}

// send copies the named inputs to the device. It ignores names that this pass does not have.
func (p *pass) send(s device.Stream, names ...string) error {
	for _, name := range names {
		if t, ok := p.inputs[name]; ok {
			if err := s.Copy(t.dev, t.host); err != nil {
				return fmt.Errorf("replica: input %s: %w", name, err)
			}
		}
	}
	return nil
}

// setScale writes the factors of the losses and the dropout key to the device. The parameter perSample is the factor of
// the loss of every further target of a sample.
func (p *pass) setScale(s device.Stream, scale, perSample float64, key uint64) error {
	if p.idle {
		return nil
	}
	p.inputs[scaleInput].put(scale)
	if t, ok := p.inputs[sampleScaleInput]; ok {
		t.put(perSample)
	}
	binary.LittleEndian.PutUint64(p.inputs[keyInput].host.Host(), key)
	return p.send(s, scaleInput, sampleScaleInput, keyInput)
}

// put writes one number to the host twin.
func (t transfer) put(v float64) {
	if t.spec.DType == tensor.F64 {
		binary.LittleEndian.PutUint64(t.host.Host(), math.Float64bits(v))
	} else {
		binary.LittleEndian.PutUint32(t.host.Host(), math.Float32bits(float32(v)))
	}
}

// roundUp returns the smallest multiple of unit that is at least n.
func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// fetch enqueues the copy of the results to a slot of host memory. The results are valid after the stream's Sync.
func (p *pass) fetch(s device.Stream, slot int) error {
	for _, t := range p.results {
		t.host.Offset += int64(slot) * p.resultBytes
		if err := s.Copy(t.host, t.dev); err != nil {
			return fmt.Errorf("replica: results: %w", err)
		}
	}
	return nil
}
