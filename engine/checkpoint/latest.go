package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Names in a folder of checkpoints. A crash may leave files or folders whose names begin with a dot. They are never
// loaded.
const (
	stepPrefix      = "step-"
	replacedSuffix  = ".old" // older checkpoint of the same step, used until the new one has its final name
	savingPrefix    = ".saving-"
	removingPrefix  = ".removing-"
	temporarySuffix = ".tmp"
	latestFile      = "latest"
	bestFile        = "best"
)

// StepName returns the folder name of a checkpoint. The parameter step is the number of optimizer steps before the
// checkpoint.
func StepName(step int64) string { return fmt.Sprintf("%s%08d", stepPrefix, step) }

// parseStepName returns the step in a folder name that StepName returned. It also accepts names with replacedSuffix.
func parseStepName(name string) (step int64, replaced, ok bool) {
	plain, replaced := strings.CutSuffix(name, replacedSuffix)
	step, err := strconv.ParseInt(strings.TrimPrefix(plain, stepPrefix), 10, 64)
	return step, replaced, err == nil && step >= 0 && StepName(step) == plain
}

// StepOf returns the step in a name that StepName returned.
func StepOf(name string) (step int64, ok bool) {
	step, replaced, ok := parseStepName(name)
	return step, ok && !replaced
}

// Unfinished returns the name of a folder for an unfinished copy of a checkpoint. Open removes such folders.
func Unfinished(name string) string { return savingPrefix + name }

// candidate is a folder that may be a checkpoint, because its name has the form of StepName.
type candidate struct {
	name     string
	step     int64
	replaced bool
}

// candidates lists the checkpoints of a folder, newest first.
func candidates(fsys fileSystem) ([]candidate, error) {
	names, err := fsys.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var list []candidate
	for _, name := range names {
		if step, replaced, ok := parseStepName(name); ok {
			list = append(list, candidate{name, step, replaced})
		}
	}
	slices.SortFunc(list, func(a, b candidate) int {
		// "step-1" comes before "step-1.old", the checkpoint that it replaced.
		return cmp.Or(-cmp.Compare(a.step, b.step), cmp.Compare(a.name, b.name))
	})
	return list, nil
}

// NewestStep returns the step of the newest checkpoint in the folder dir. It reads only the names of folders. The
// result ok is false if there is no checkpoint.
func NewestStep(dir string) (step int64, ok bool) {
	fsys, err := openFolder(dir)
	if err != nil {
		return 0, false
	}
	defer fsys.root.Close()
	list, err := candidates(fsys)
	if err != nil || len(list) == 0 {
		return 0, false
	}
	return list[0].step, true
}

// Skipped describes a checkpoint that Latest skipped, and the reason.
type Skipped struct {
	Path string
	Err  error
}

func (s Skipped) String() string { return fmt.Sprintf("checkpoint %s skipped: %v", s.Path, s.Err) }

// Unreadable reports whether the system refused to read the checkpoint, which may be valid.
func (s Skipped) Unreadable() bool { return errors.As(s.Err, new(*IOError)) }

// refusedError contains the reasons why no checkpoint could be read.
type refusedError struct {
	text   string
	causes []error
}

func (e *refusedError) Error() string   { return e.text }
func (e *refusedError) Unwrap() []error { return e.causes }

// Latest loads the newest valid checkpoint in the folder dir. It also returns a list of newer checkpoints that it
// skipped. Errors: ErrNone if there is no checkpoint or no folder, *CorruptError if no checkpoint is valid,
// *FormatError if the newest undamaged checkpoint has a later format, *IOError.
func Latest(dir string) (*Checkpoint, []Skipped, error) {
	if err := refuseQuarantined(dir); err != nil {
		return nil, nil, err
	}
	fsys, err := openFolder(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w in %s", ErrNone, dir)
	}
	if err != nil {
		return nil, nil, ioError("open checkpoints", dir, err)
	}
	defer fsys.root.Close()
	return latest(fsys, dir)
}

// Latest does the same as the function Latest, for the folder of the Store. It calls Options.Watch for each operation.
func (s *Store) Latest() (*Checkpoint, []Skipped, error) {
	if err := refuseQuarantined(s.dir); err != nil {
		return nil, nil, err
	}
	return latest(s.fsys, s.dir)
}

func latest(fsys fileSystem, dir string) (*Checkpoint, []Skipped, error) {
	list, err := candidates(fsys)
	if err != nil {
		return nil, nil, ioError("list checkpoints", dir, err)
	}
	if len(list) == 0 {
		return nil, nil, fmt.Errorf("%w in %s", ErrNone, dir)
	}
	var skipped []Skipped
	for _, cand := range list {
		c, err := loadCandidate(fsys, cand, dir)
		if err == nil {
			return c, skipped, nil
		}
		if errors.As(err, new(*FormatError)) {
			return nil, skipped, err // the checkpoint may be valid; skipping it would discard trained steps
		}
		skipped = append(skipped, Skipped{filepath.Join(dir, cand.name), err})
	}
	var reasons strings.Builder
	var refused []error // of unreadable checkpoints
	for _, s := range skipped {
		fmt.Fprintf(&reasons, "\n  %v", s)
		if s.Unreadable() {
			refused = append(refused, s.Err)
		}
	}
	if len(refused) == len(skipped) {
		return nil, skipped, &IOError{Op: "load the newest checkpoint of", Path: dir,
			Err: &refusedError{strings.TrimSpace(reasons.String()), refused}}
	}
	return nil, skipped, corrupt(dir, "all %d checkpoints are invalid:%s", len(list), reasons.String())
}

// loadCandidate loads a checkpoint. It checks that the step in the state equals the step in the folder name.
func loadCandidate(fsys fileSystem, cand candidate, dir string) (*Checkpoint, error) {
	path := filepath.Join(dir, cand.name)
	c, err := load(fsys, cand.name, path)
	if err != nil {
		return nil, err
	}
	if c.State.Step != cand.step {
		c.Close()
		return nil, corrupt(path, "the state belongs to step %d", c.State.Step)
	}
	return c, nil
}

// LoadBest loads the checkpoint that the file `best` names. Errors: ErrNone if there is no such file, *CorruptError,
// *FormatError, *IOError.
func LoadBest(dir string) (*Checkpoint, error) {
	fsys, err := openFolder(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s", ErrNone, dir)
	}
	if err != nil {
		return nil, ioError("open checkpoints", dir, err)
	}
	defer fsys.root.Close()
	return loadBest(fsys, dir)
}

func loadBest(fsys fileSystem, dir string) (*Checkpoint, error) {
	name, err := readPointer(fsys, bestFile)
	if err != nil {
		return nil, ioError("read", filepath.Join(dir, bestFile), err)
	}
	if name == "" {
		return nil, fmt.Errorf("%w called best in %s", ErrNone, dir)
	}
	step, replaced, ok := parseStepName(name)
	if !ok || replaced {
		return nil, corrupt(filepath.Join(dir, bestFile), "got %q, want the name of a checkpoint", name)
	}
	c, err := loadCandidate(fsys, candidate{name: name, step: step}, dir)
	if err != nil {
		// A crash may have interrupted the replacement of this checkpoint. Therefore try the older checkpoint of the
		// same step.
		old, oldErr := loadCandidate(fsys, candidate{name + replacedSuffix, step, true}, dir)
		if oldErr == nil {
			return old, nil
		}
	}
	return c, err
}

// readPointer returns the contents of the file `latest` or `best`, or "" if the file does not exist.
func readPointer(fsys fileSystem, name string) (string, error) {
	text, err := readText(fsys, name, 256)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return text, err
}

// readText returns at most the first limit bytes of a file, without surrounding white space.
func readText(fsys fileSystem, name string, limit int64) (string, error) {
	file, err := fsys.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return "", err
	}
	text := make([]byte, min(size, limit))
	if err := readFull(file, text, 0); err != nil {
		return "", err
	}
	return strings.TrimSpace(string(text)), nil
}
