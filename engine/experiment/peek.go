package experiment

import (
	"path/filepath"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// Peek returns the state of the checkpoint from which Open would resume, without loading tensors. For a new run, it
// returns checkpoint.ErrNone. It locks and changes nothing. Peek does not detect all damage, such as damaged tensors,
// so Open may later choose another checkpoint.
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
