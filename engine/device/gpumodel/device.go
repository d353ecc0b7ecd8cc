package gpumodel

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/null"
)

// ReservedBytes is the memory of a GPU that a rank cannot use for its tensors: CUDA's context with the code of the
// libraries, and the scratch memory of kernels, of which the largest may be 512 MiB. It is an assumption.
const ReservedBytes = 1 << 30

// Device compiles the ops that package cuda compiles. It is for plans only: Info describes the GPU, but streams of a
// Device set no marks, so it does not conform to package device. Its methods are safe for concurrent use.
type Device struct {
	*null.Device
	gpu GPU
}

// Open returns a device for plans of g. The caller closes it.
func Open(g GPU) (*Device, error) {
	dev, err := null.New(null.Model{MemoryBytes: g.MemoryBytes})
	if err != nil {
		return nil, err
	}
	dev.Saved = savedBytes
	dev.Scratch = func(op device.Op, in, _ []device.TensorSpec) int64 { return g.scratchBytes(op, in) }
	return &Device{Device: dev, gpu: g}, nil
}

// Info implements device.Device.
func (d *Device) Info() device.Info {
	return device.Info{Name: "model of " + d.gpu.Name, Kind: "cuda", Model: d.gpu.Model, ISA: d.gpu.ISA,
		MemoryBytes: d.gpu.MemoryBytes, FreeBytes: d.gpu.MemoryBytes - ReservedBytes, FastBF16: d.gpu.BF16 > 0,
		// plans contain the memory of the marks that streams of the GPU set
		Behind: true, Modelled: true}
}

// mostHeadChannels is the largest number of channels of an attention head in package cuda.
const mostHeadChannels = 128

// Compile implements device.Device.
func (d *Device) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	heads, image := 0, device.TensorSpec{}
	switch op := op.(type) {
	case device.Attention:
		heads, image = op.Heads, out[0]
	case device.AttentionDiff:
		heads, image = op.Heads, in[0]
	}
	if heads > 0 && image.Shape[len(image.Shape)-1]/heads > mostHeadChannels {
		return nil, fmt.Errorf("%s: %w: heads of more than %d channels", op.Kind(), device.ErrUnsupported,
			mostHeadChannels)
	}
	return d.Device.Compile(op, in, out)
}

// savedBytes returns the size of saved state as cuda/src/batchnorm.cu and pool.cu store it. A mask has one bit per
// element if the channels fill units of 16 bytes; an argmax has two bytes.
func savedBytes(op device.Op, image device.TensorSpec) int64 {
	elements := image.Shape.Elements()
	switch op.(type) {
	case device.BatchNormApply, device.BatchNormDiffReduce:
		if unit := 16 / image.DType.Size(); int64(image.Shape[1])%unit == 0 {
			return elements / unit
		}
		return elements
	}
	return 2 * elements
}

// scratchBytes returns the fixed part of a kernel's workspace, as cuda/src/linear_loss.cu and attention.cu reserve it.
// Libraries on the GPU choose the workspaces of products and convolutions. Those of sums over rows are small.
func (g GPU) scratchBytes(op device.Op, in []device.TensorSpec) int64 {
	const word = 4
	switch op.(type) {
	case device.AttentionDiff:
		return word * in[2].Shape.Elements() // one sum for each row of each head
	case device.LinearCrossEntropy:
		return g.lossBytes(in, word)
	case device.LinearCrossEntropyBoth:
		classes, channels := int64(in[1].Shape[0]), int64(in[0].Shape[1])
		bytes := g.lossBytes(in, in[0].DType.Size())
		if classes%lossUnit != 0 {
			bytes += word * lossUnit * channels // gradient of the last classes
		}
		if len(in) == 5 {
			bytes += word * (classes/lossUnit + 2) * lossUnit // gradients of the bias
		}
		return bytes
	}
	return 0
}

// lossUnit is the number of which the padded classes and the rows of a block are multiples, in package cuda.
const lossUnit = 64

func roundUp(n int64) int64 { return (n + lossUnit - 1) / lossUnit * lossUnit }

// mostLogits and partOfMemory limit the logits that package cuda has in memory, to mostLogits bytes and to a fraction
// of the GPU's memory.
const mostLogits, partOfMemory = gib, 16

// lossBytes returns the memory for the logits of a block of rows, whose elements have size bytes, and for a padded copy
// of the weights.
func (g GPU) lossBytes(in []device.TensorSpec, size int64) int64 {
	rows, classes, channels := int64(in[0].Shape[0]), int64(in[1].Shape[0]), int64(in[0].Shape[1])
	padded := roundUp(classes)
	most := max(min(mostLogits, g.MemoryBytes/partOfMemory)/(padded*size)/lossUnit*lossUnit, lossUnit)
	blocks := (rows + most - 1) / most
	bytes := min(roundUp((rows+blocks-1)/blocks), rows) * padded * size
	if padded > classes {
		bytes += padded * channels * in[1].DType.Size()
	}
	return bytes
}
