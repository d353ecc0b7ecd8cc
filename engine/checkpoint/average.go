package checkpoint

import (
	"slices"
	"strings"
)

// averageSuffix ends the names of averaged weights in optimizer.safetensors.
const averageSuffix = ".ema"

// AverageName is the name, in optimizer.safetensors, of the average of a tensor of model.safetensors. What is not averaged (frozen
// parameters and statistics) has none: its average is the tensor itself.
func AverageName(tensor string) string { return tensor + averageSuffix }

// IsAverage reports whether the tensor is the average of another.
func (i Info) IsAverage() bool { return strings.HasSuffix(i.Name, averageSuffix) }

// Averaged reports whether the checkpoint holds averages of the weights.
func (c *Checkpoint) Averaged() bool { return slices.ContainsFunc(c.Optimizer.tensors, Info.IsAverage) }

// ReadAverage is File.ReadInto of Model for the averaged weights: the average of the named tensor, or the tensor itself where it has none.
func (c *Checkpoint) ReadAverage(name string, dst []byte) error {
	if _, ok := c.Optimizer.Info(AverageName(name)); ok {
		return c.Optimizer.ReadInto(AverageName(name), dst)
	}
	return c.Model.ReadInto(name, dst)
}
