package experiment

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// The weights of a finished run are lost only if all its checkpoints are damaged. A checkpoint can be valid even if it
// cannot be opened, or has a later format.
func TestUnreadableCheckpointsOfAFinishedRunAreNotLost(t *testing.T) {
	damage := func(t *testing.T, path string) {
		if err := os.Truncate(filepath.Join(path, "MANIFEST"), 5); err != nil {
			t.Fatal(err)
		}
	}
	refuse := func(t *testing.T, path string) { // ELOOP, because permissions do not prevent root from reading
		if err := errors.Join(os.RemoveAll(path), os.Symlink(filepath.Base(path), path)); err != nil {
			t.Fatal(err)
		}
	}
	later := func(t *testing.T, path string) {
		path = filepath.Join(path, "MANIFEST")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(text), "\n")
		last := len(lines) - 2 // after the last line, there is an empty string
		title := strings.Fields(lines[0])
		title[len(title)-1] = "9999"
		lines[0] = strings.Join(title, " ") + "\n"
		body := strings.Join(lines[:last], "")
		sum := fmt.Sprintf("manifest %x\n", sha256.Sum256([]byte(body)))
		if err := os.WriteFile(path, []byte(body+sum), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	isFormat := func(err error) bool { return errors.As(err, new(*checkpoint.FormatError)) }
	isLoop := func(err error) bool { return errors.Is(err, syscall.ELOOP) }
	isCorrupt := func(err error) bool { return errors.As(err, new(*checkpoint.CorruptError)) }
	for _, c := range []struct {
		name         string
		first, last  func(*testing.T, string)
		lost, unread func(error) bool // check the errors; nil: no error
		warning      string
	}{
		{"both damaged", damage, damage, isCorrupt, nil, ""},
		{"both refused", refuse, refuse, nil, isLoop, ""},
		{"the first one refused", refuse, damage, nil, isCorrupt, ""},
		{"the last one of a later format", nil, later, nil, isFormat, ""},
		{"the last one damaged", nil, damage, nil, nil, "is damaged"},
		{"the last one refused", nil, refuse, nil, nil, "cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			run := mustOpen(t, auto(dir))
			if err := run.WriteResult(Result{Steps: 100}); err != nil {
				t.Fatal(err)
			}
			saveSteps(t, run, 50, 100)
			for step, change := range map[int64]func(*testing.T, string){50: c.first, 100: c.last} {
				if change != nil {
					change(t, filepath.Join(run.CheckpointDir(), checkpoint.StepName(step)))
				}
			}
			options := auto(dir)
			options.Steps = 100
			run = mustOpen(t, options)
			defer run.Close()
			for _, e := range []struct {
				name string
				got  error
				want func(error) bool
			}{{"lost", run.Lost, c.lost}, {"unread", run.Unread, c.unread}} {
				if (e.got != nil) != (e.want != nil) || e.got != nil && !e.want(e.got) {
					t.Errorf("%s: got %v, want an error: %v", e.name, e.got, e.want != nil)
				}
			}
			if text := strings.Join(run.Warnings, "\n"); run.Finished == nil || (c.warning == "") != (text == "") ||
				!strings.Contains(text, c.warning) {
				t.Errorf("got finished %v and the warnings %q, want %q", run.Finished, text, c.warning)
			}
		})
	}
}
