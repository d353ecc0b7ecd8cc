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
	dev.Saved, dev.Scratch = savedBytes, scratchBytes
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
func scratchBytes(op device.Op, in, out []device.TensorSpec) int64 {
	const rowsOfPart, classesOfPart, word, statistics = 8192, 4096, 4, 16
	switch op.(type) {
	case device.AttentionDiff:
		return word * in[2].Shape.Elements() // one sum for each row of each head
	case device.LinearCrossEntropy, device.LinearCrossEntropyDiff:
	default:
		return 0
	}
	all, channels := int64(in[0].Shape[0]), int64(in[0].Shape[1])
	rows, classes := min(all, rowsOfPart), min(int64(in[1].Shape[0]), classesOfPart)
	logits := word * rows * classes
	if _, forward := op.(device.LinearCrossEntropy); forward {
		return logits + statistics*all
	}
	sums := int64(0)
	if in[0].DType.Size() < word {
		sums = word * rows * channels
	}
	return logits + sums + word*max(rows, classes)*channels + word*classes
}
