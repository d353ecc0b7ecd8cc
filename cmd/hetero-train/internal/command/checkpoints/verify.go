package checkpoints

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/experiment"
)

const verifyLong = `Read and check every byte of a checkpoint, of all checkpoints of a run, or of a .safetensors file.

For a checkpoint, the command compares the size and SHA-256 of each file and the CRC-32C of each tensor with the manifest. It also
compares the headers with the data. A .safetensors file outside a checkpoint has no checksums.

The hashes prove that the bytes are those that were saved. With several ranks, the output also states whether the ranks had equal
states when the checkpoint was saved, and which steps no comparison of the ranks covers. Checkpoints that a run quarantined are
listed with the reason; they are faults only if PATH names one of them.

NaN and infinite values are faults. The command lists every fault with its position, and exits with code 3 if there are any.`

const verifyExample = `  hetero-train checkpoint verify experiments/run                      all checkpoints of the run
  hetero-train checkpoint verify experiments/run/checkpoints/latest   one checkpoint
  hetero-train checkpoint verify resnet50.safetensors --json`

func newCheckpointVerify(a *cli.App) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "verify PATH", Short: "Check hashes and values of checkpoints", Long: verifyLong,
		Example: verifyExample}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	return a.OnePath(cmd, "a checkpoint, a run or a .safetensors file", func(path string) error {
		return verifyPath(a, path, asJSON)
	})
}

// Verification is the output of command checkpoint verify.
type Verification struct {
	Sound   bool               `json:"sound"`
	Checked []checked          `json:"checked"`
	Faults  []checkpoint.Fault `json:"faults"`

	Quarantined []checkpoint.Quarantine `json:"quarantined,omitempty"`
}

// checked is one verified checkpoint or file.
type checked struct {
	Path    string `json:"path"`
	Files   int    `json:"files"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
	Faults  int    `json:"faults"`

	Compared string `json:"compared,omitempty"` // how the ranks compared this state
	Diverged string `json:"diverged,omitempty"` // warning that the run ended because its loss was not finite
}

func verifyPath(a *cli.App, path string, asJSON bool) error {
	all, err := verifyAll(func() ([]string, error) { return toVerify(path) },
		func(p string) (checkpoint.Verified, error) {
			if parts.IsWeightsFile(p) {
				return checkpoint.VerifyFile(p)
			}
			return checkpoint.Verify(p)
		})
	if err != nil {
		return err
	}
	if all.Quarantined, err = quarantined(path); err != nil {
		return err
	}
	if err := all.show(a, asJSON); err != nil {
		return err
	}
	if all.Sound {
		return nil
	}
	first := all.Faults[0]
	more := ""
	if n := len(all.Faults) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more faults)", n)
	}
	return exit.With(exit.Data, fmt.Errorf("%s%s", first, more))
}

// verifyAll verifies the paths that list returns. Meanwhile, a run may train, and save and remove checkpoints.
// verifyAll therefore ignores the faults of a checkpoint that was removed or replaced during the verification. If it
// has to ignore all checkpoints, it calls list again.
func verifyAll(list func() ([]string, error), verify func(path string) (checkpoint.Verified, error)) (Verification,
	error) {
	// Maximum number of calls of list. It is not enough only if a run always replaces its checkpoints faster than they
	// can be read.
	const most = 20
	for range most {
		all := Verification{Faults: []checkpoint.Fault{}}
		paths, err := list()
		if err != nil {
			return all, err
		}
		for _, p := range paths {
			before, statErr := os.Stat(p)
			v, err := verify(p)
			if err != nil || len(v.Faults) > 0 {
				after, goneErr := os.Stat(p)
				if errors.Is(statErr, fs.ErrNotExist) || errors.Is(goneErr, fs.ErrNotExist) || statErr == nil &&
					goneErr == nil && !os.SameFile(before, after) {
					continue
				}
			}
			if err != nil {
				return all, err
			}
			all.Checked = append(all.Checked, checked{Path: v.Path, Files: v.Files, Tensors: v.Tensors, Bytes: v.Bytes,
				Faults: len(v.Faults), Compared: v.Compared, Diverged: parts.Diverged(v.Path)})
			all.Faults = append(all.Faults, v.Faults...)
		}
		if all.Sound = len(all.Faults) == 0; len(all.Checked) > 0 {
			return all, nil
		}
	}
	return Verification{}, exit.Usagef("checkpoint verify: training removed or replaced all checkpoints during each of %d attempts to read them: stop the run, or raise its checkpoint.keep",
		most)
}

// quarantined lists the checkpoints in quarantine. The argument path is the folder of a run or a folder of checkpoints.
func quarantined(path string) ([]checkpoint.Quarantine, error) {
	dir := experiment.CheckpointsIn(path)
	if !parts.IsFolder(dir) || experiment.IsCheckpoint(dir) {
		return nil, nil
	}
	return checkpoint.Quarantined(dir)
}

// toVerify returns the checkpoints, or the file, that path names.
func toVerify(path string) ([]string, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, exit.Usagef("%w", err)
	}
	if parts.IsWeightsFile(path) {
		return []string{path}, nil
	}
	path = experiment.Named(path)
	dir := experiment.CheckpointsIn(path)
	names, err := checkpoint.List(dir)
	var refused *checkpoint.IOError
	if errors.As(err, &refused) && !parts.IsFolder(dir) {
		return nil, exit.Usagef("%s: got a file, want a checkpoint, a run or a .safetensors file", path)
	}
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		if !experiment.IsCheckpoint(path) {
			return nil, exit.Usagef("%s: %w: neither a checkpoint nor a folder of checkpoints", path,
				checkpoint.ErrNone)
		}
		return []string{path}, nil
	}
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = filepath.Join(dir, name)
	}
	return paths, nil
}

func (v Verification) show(a *cli.App, asJSON bool) error {
	if asJSON {
		return show.JSON(a.Env.Stdout, v)
	}
	var b strings.Builder
	for _, c := range v.Checked {
		verdict := "sound"
		if c.Faults > 0 {
			verdict = fmt.Sprintf("%d faults", c.Faults)
		}
		fmt.Fprintf(&b, "%s: %s (%d files, %d tensors, %s)\n", show.Foreign(c.Path), verdict, c.Files, c.Tensors,
			show.Bytes(c.Bytes))
		if c.Compared != "" {
			fmt.Fprintf(&b, "  %s\n", show.Foreign(c.Compared))
		}
		if c.Diverged != "" {
			fmt.Fprintf(&b, "  warning: %s\n", show.Foreign(c.Diverged))
		}
	}
	for _, q := range v.Quarantined {
		fmt.Fprintf(&b, "%s: quarantined (%s)\n  %s\n", show.Foreign(q.Path),
			strings.Join(show.Foreigners(q.Checkpoints), ", "), show.Foreign(q.Reason))
	}
	for _, f := range v.Faults {
		fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(fmt.Sprint(f), "\n", "\n    "))
	}
	_, err := fmt.Fprint(a.Env.Stdout, b.String())
	return err
}
