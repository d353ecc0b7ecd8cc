package experiment

import (
	"path/filepath"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// Peek is the state of the checkpoint from which Open would go on, without its tensors, or checkpoint.ErrNone where a run would start. It locks and
// changes nothing, so Open may find another one afterwards: a checkpoint with damaged tensors, for instance, is only found out when it is loaded.
func Peek(options Options) (checkpoint.State, error) {
	path := options.Resume
	switch {
	case path == ResumeNone || path == ResumeAuto && !ValidName(options.Name):
		return checkpoint.State{}, checkpoint.ErrNone
	case path == ResumeAuto:
		path = filepath.Join(options.OutputDir, options.Name, checkpointsFolder)
	default:
		path = CheckpointsIn(Named(path))
	}
	return checkpoint.PeekState(path)
}
