package checkpoints

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// A run may remove or replace a checkpoint while it is verified. Such a checkpoint must not count as faulty.
func TestCheckpointsThatAreRemovedMeanwhileHaveNoFaults(t *testing.T) {
	fault := []checkpoint.Fault{{Reason: "a file is missing"}}
	errGone := errors.New("gone")
	for _, c := range []struct {
		name string
		// By name of a checkpoint: a change of this checkpoint during its verification.
		meet map[string]func(path string) error
		err  error    // error of reading the changed checkpoint; nil: it counts as a fault
		want []string // names of the checkpoints in the result
		bad  int
	}{
		{"none", nil, nil, []string{"a", "b"}, 0},
		{"removed", map[string]func(string) error{"a": os.Remove}, nil, []string{"b"}, 0},
		{"removed, with an error", map[string]func(string) error{"a": os.Remove}, errGone, []string{"b"}, 0},
		{"damaged", map[string]func(string) error{"a": func(string) error { return nil }}, nil, []string{"a", "b"}, 1},
		{"replaced", map[string]func(string) error{"b": replaceFolder}, nil, []string{"a"}, 0},
		{"all removed, then another one", map[string]func(string) error{"a": os.Remove, "b": func(path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(filepath.Join(filepath.Dir(path), "c"), 0o755))
		}}, nil, []string{"c"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := errors.Join(os.Mkdir(filepath.Join(dir, "a"), 0o755),
				os.Mkdir(filepath.Join(dir, "b"), 0o755)); err != nil {
				t.Fatal(err)
			}
			list := func() ([]string, error) { return filepath.Glob(filepath.Join(dir, "?")) }
			got, err := verifyAll(list, func(path string) (checkpoint.Verified, error) {
				v := checkpoint.Verified{Path: path}
				meet, ok := c.meet[filepath.Base(path)]
				if !ok {
					return v, nil
				}
				if err := meet(path); err != nil {
					t.Error(err)
				}
				v.Faults = fault
				return v, c.err
			})
			var names []string
			for _, checked := range got.Checked {
				names = append(names, filepath.Base(checked.Path))
			}
			if err != nil || !slices.Equal(names, c.want) || len(got.Faults) != c.bad || got.Sound != (c.bad == 0) {
				t.Errorf("got %q, %d faults, sound %v, %v; want %q and %d", names, len(got.Faults), got.Sound, err,
					c.want, c.bad)
			}
		})
	}
}

// replaceFolder replaces a folder by another one. It keeps the old folder under another name; otherwise the system
// would reuse its inode number.
func replaceFolder(path string) error {
	return errors.Join(os.Rename(path, path+".old"), os.Mkdir(path, 0o755))
}

func TestCheckpointsThatNeverStayAreSaid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	_, err := verifyAll(func() ([]string, error) { return []string{path}, os.Mkdir(path, 0o755) },
		func(path string) (checkpoint.Verified, error) {
			return checkpoint.Verified{Faults: []checkpoint.Fault{{}}}, os.Remove(path)
		})
	if exit.Code(err) != exit.Usage {
		t.Errorf("got %v", err)
	}
}
