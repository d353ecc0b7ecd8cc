package checkpoint

import (
	"slices"
	"strings"
)

// averageSuffix is the suffix of the names of averaged tensors in optimizer.safetensors.
const averageSuffix = ".ema"

// AverageName returns the name in optimizer.safetensors of the average of a tensor. The parameter tensor is the
// tensor's name in model.safetensors. Frozen parameters and frozen statistics have no average.
func AverageName(tensor string) string { return tensor + averageSuffix }

// IsAverage reports whether the tensor is the average of another tensor.
func (i Info) IsAverage() bool { return strings.HasSuffix(i.Name, averageSuffix) }

// Averaged reports whether the checkpoint contains averages of the weights.
func (c *Checkpoint) Averaged() bool { return slices.ContainsFunc(c.Optimizer.tensors, Info.IsAverage) }

// ReadAverage reads the average of the named model tensor into dst. If the tensor has no average, it reads the tensor
// itself. Its errors are those of File.ReadInto.
func (c *Checkpoint) ReadAverage(name string, dst []byte) error {
	if _, ok := c.Optimizer.Info(AverageName(name)); ok {
		return c.Optimizer.ReadInto(AverageName(name), dst)
	}
	return c.Model.ReadInto(name, dst)
}
