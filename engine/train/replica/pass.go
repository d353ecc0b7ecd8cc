package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/plan"
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

// hostBytes returns the size of the buffer that bind allocates. The plan need not be bound.
func (p *pass) hostBytes() int64 {
	var inputs, results int64
	for _, name := range p.plan.InputNames() {
		if name != gradsync.SamplesInput {
			inputs += roundUp(p.plan.InputBytes(name), twinUnit)
		}
	}
	for _, name := range p.outputs() {
		results += roundUp(p.plan.OutputBytes(name), twinUnit)
	}
	return max(inputs+results*int64(max(p.slots, 1)), 1)
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
