package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
)

func TestArgumentsThatNameRuns(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"experiments/first", "experiments/both", "both", "elsewhere", "other/first",
		"experiments/linked"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile("weights.safetensors", nil, 0o600),
		os.WriteFile("experiments/weights.safetensors", nil, 0o600),
		os.Symlink("experiments/linked", "linked")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ argument, output, want, fault string }{
		{"first", "", "experiments/first", ""},
		{"first", "other", "other/first", ""},
		{"experiments/first", "", "experiments/first", ""},
		{"elsewhere", "", "elsewhere", ""},
		{"weights.safetensors", "", "weights.safetensors", ""}, // a file in the folder of runs does not count as a run
		{"linked", "", "experiments/linked", ""},
		{"./both", "", "./both", ""},
		{"", "", "", ""},
		{"-", "", "-", ""},
		{".", "", ".", ""},
		{"http://127.0.0.1:5000#e/r", "", "http://127.0.0.1:5000#e/r", ""},
		{"both", "", "", "write experiments/both or ./both"},
		{"second", "", "", "no run of this name in experiments, and no such file or folder"},
	} {
		a := &App{}
		if c.output != "" {
			a.Overrides = []config.Override{{Key: "experiment.output_dir", Value: `"` + c.output + `"`}}
		}
		got, err := a.RunPath(c.argument)
		if c.fault == "" && (err != nil || filepath.ToSlash(got) != c.want) {
			t.Errorf("%q: got %q, %v, want %q", c.argument, got, err, c.want)
		}
		if c.fault != "" && (err == nil || exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%q: got %q, %v, want %q", c.argument, got, err, c.fault)
		}
	}
}
