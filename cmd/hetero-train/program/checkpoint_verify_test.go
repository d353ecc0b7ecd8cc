package program

import (
	"bytes"
	"errors"
	"image/color"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
)

func TestASummaryThatCannotBeWrittenInThatFolderIsForTheUserToMend(t *testing.T) {
	dir, _ := trainSmall(t)
	summary := filepath.Join(dir, "logs", observe.SummaryFile)
	if err := errors.Join(os.RemoveAll(summary), os.MkdirAll(filepath.Join(summary, "in the way"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if o := execute([]string{"analyze", dir}); o.code != exit.Usage {
		t.Errorf("got exit code %d, want %d: %s", o.code, exit.Usage, o.stderr)
	}
}

// The weights of a diverged run may be finite. Only the result of the run then shows that they are useless.
func TestCheckpointsOfARunThatDivergedAreWarnedOf(t *testing.T) {
	t.Parallel()
	dir, _ := trainSmall(t)
	picture := filepath.Join(t.TempDir(), "red.png")
	writePNG(t, picture, color.RGBA{R: 255, A: 255})
	commands := [][]string{
		{"checkpoint", "verify", dir}, {"checkpoint", "inspect", dir},
		{"checkpoint", "export", dir, "-o", filepath.Join(t.TempDir(), "out.safetensors")},
		{"predict", dir, picture, "--device", "reference"}, {"eval", dir, "--device", "reference"},
	}
	const warning = "its run diverged: the loss was not finite after step 20"
	for _, args := range commands {
		if o := execute(args); o.code != exit.Done || strings.Contains(o.stdout+o.stderr, "diverged") {
			t.Errorf("%q: got exit code %d and %q of a sound run", args, o.code, o.stderr)
		}
	}
	result := filepath.Join(dir, "results", "result.json")
	text, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	diverged := bytes.Replace(text, []byte(`"exit": 0`), []byte(`"exit": 4`), 1)
	if bytes.Equal(diverged, text) {
		t.Fatalf("got %s, want an exit code", text)
	}
	if err := os.WriteFile(result, diverged, 0o600); err != nil {
		t.Fatal(err)
	}
	commands[2] = append(commands[2], "--force")
	for _, args := range commands {
		if o := execute(args); o.code != exit.Done || !strings.Contains(o.stdout+o.stderr, warning) {
			t.Errorf("%q: got exit code %d, %q and %q, want the warning", args, o.code, o.stdout, o.stderr)
		}
	}
}
