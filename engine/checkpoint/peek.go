package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
)

// PeekState returns the state of a checkpoint without loading its tensors. The parameter dir is the path of a
// checkpoint or of a folder of checkpoints. In a folder of checkpoints, PeekState uses the newest one with a valid
// state. It does not verify tensors, so Latest may choose an older checkpoint. Errors: ErrNone if no checkpoint has a
// valid state, *IOError.
func PeekState(dir string) (State, error) {
	fsys, err := openFolder(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, fmt.Errorf("%w in %s", ErrNone, dir)
	}
	if err != nil {
		return State{}, ioError("open checkpoints", dir, err)
	}
	defer fsys.root.Close()
	list, err := candidates(fsys)
	if err != nil {
		return State{}, ioError("list checkpoints", dir, err)
	}
	if len(list) == 0 {
		list = []candidate{{name: "."}}
	}
	for _, cand := range list {
		m, err := readManifest(fsys, cand.name, dir)
		if err != nil {
			continue
		}
		if state, err := loadState(fsys, cand.name, dir, m.files[stateFile]); err == nil {
			return state, nil
		}
	}
	return State{}, fmt.Errorf("%w with a valid state in %s", ErrNone, dir)
}
