package checkpoint

import (
	"errors"
	"fmt"
	"strings"
)

// ErrFolderGone means that a checkpoint cannot be saved, because its folder was removed.
var ErrFolderGone = errors.New("the folder of checkpoints was removed, and the earlier checkpoints with it")

// ErrNone means that a folder contains no checkpoint, neither valid nor damaged.
var ErrNone = errors.New("no checkpoint")

// CorruptError reports a file or checkpoint that is damaged, incomplete or of another format.
type CorruptError struct {
	Path   string // path of the file or folder
	Reason string // description of the fault with the found and the expected value
}

func (e *CorruptError) Error() string { return fmt.Sprintf("%s is corrupt: %s", e.Path, e.Reason) }

func corrupt(path, format string, args ...any) error {
	return &CorruptError{Path: path, Reason: fmt.Sprintf(format, args...)}
}

// pyTorchError reports a file that torch.save wrote, as a zip archive or a pickle.
type pyTorchError struct{ path string }

func (e *pyTorchError) Error() string {
	return fmt.Sprintf("%s is a file of PyTorch (torch.save), want a .safetensors file: load it in Python and write safetensors.torch.save_file(model.state_dict(), \"NAME.safetensors\")",
		e.path)
}

// Unwrap returns a CorruptError, because the file has a different format.
func (e *pyTorchError) Unwrap() error { return corrupt(e.path, "a file of PyTorch") }

// FormatError reports a checkpoint of a format version that this program does not support.
type FormatError struct {
	Path      string
	Got, Want int // format versions
}

func (e *FormatError) Error() string {
	return fmt.Sprintf(
		"%s has checkpoint format %d, this program reads format %d: use the program version that wrote it", e.Path,
		e.Got, e.Want)
}

// IOError reports an operation that the system refused. errors.Is finds the cause, for example syscall.ENOSPC.
type IOError struct {
	Op   string // operation that was attempted
	Path string
	Err  error
}

func (e *IOError) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err) }

// Unwrap returns the error of the system.
func (e *IOError) Unwrap() error { return e.Err }

// AlteredError reports that the data of a tensor changed in memory after the ranks compared it and before it was
// written. Nothing was saved.
type AlteredError struct {
	Tensor    string
	Got, Want uint32 // CRC-32C
}

func (e *AlteredError) Error() string {
	return fmt.Sprintf("tensor %q changed in memory after the ranks compared it (CRC-32C %08x, want %08x): check the memory of this machine (ECC errors)",
		e.Tensor, e.Got, e.Want)
}

func ioError(op, path string, err error) error {
	var same *IOError
	if err == nil || errors.As(err, &same) {
		return err
	}
	return &IOError{Op: op, Path: path, Err: err}
}

// Difference is a tensor or a setting that differs between a file and a model. If the file lacks it, File is empty. If
// the model lacks it, Model is empty.
type Difference struct {
	Name  string
	File  string // in the file: element type and shape of a tensor, value of a setting
	Model string // the same for the model
}

func (d Difference) String() string {
	switch {
	case d.Model == "":
		return fmt.Sprintf("%s: only in the file, %s", d.Name, d.File)
	case d.File == "":
		return fmt.Sprintf("%s: only in the model, %s", d.Name, d.Model)
	}
	return fmt.Sprintf("%s: file %s, model %s", d.Name, d.File, d.Model)
}

// MismatchError reports that the tensors or the settings of a valid file differ from those of the model.
type MismatchError struct {
	Path        string
	Settings    bool         // the differences are in settings, not in tensors
	Differences []Difference // all differences, sorted by name
}

// shownDifferences limits the number of differences in the text of a MismatchError, because two models may differ in
// every tensor.
const shownDifferences = 10

func (e *MismatchError) Error() string {
	var b strings.Builder
	what := "tensor"
	if e.Settings {
		what = "setting"
	}
	if len(e.Differences) == 1 {
		what += " differs"
	} else {
		what += "s differ"
	}
	fmt.Fprintf(&b, "%s belongs to another model; %d %s:", e.Path, len(e.Differences), what)
	for i, d := range e.Differences {
		if i == shownDifferences {
			fmt.Fprintf(&b, "\n  … and %d more", len(e.Differences)-i)
			break
		}
		fmt.Fprintf(&b, "\n  %s", d)
	}
	return b.String()
}
