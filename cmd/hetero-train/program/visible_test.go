package program

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/run"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
)

// hostile is a name with control characters. It clears the screen, sets the title, forges a line, and overwrites its
// own line. It also contains an 8-bit control sequence, and reverses the text after it.
const hostile = "evil\x1b[2J\x1b]0;title\x07\nFORGED: all is well\rFORGED\u009b31m\u202etxt"

func TestNothingFromAFileReachesTheTerminalAsIs(t *testing.T) {
	t.Parallel()
	weights := writeWeights(t, values(hostile, []int{2}, 1), values("b", []int{1}, 1))
	damaged := clitest.WriteConfig(t, "x")
	evil := filepath.Join(t.TempDir(), hostile)
	if err := os.MkdirAll(evil, 0o755); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(evil, "model.safetensors")
	if err := os.WriteFile(copied, clitest.ReadFile(t, weights), 0o644); err != nil {
		t.Fatal(err)
	}
	pictures := picturesNamed(t, hostile)
	trained, printed := trainSmall(t)
	names := clitest.WriteConfig(t, strings.Repeat("evil\x1b[2J\rFORGED\u009b31m\u202e\n", 10))
	clitest.Harmless(t, "train", printed)
	for _, c := range []struct {
		name string
		args []string
		says string // expected form of the name in the output
	}{
		{"inspect", []string{"checkpoint", "inspect", weights}, `"evil\x1b[2J`},
		{"inspect, JSON", []string{"checkpoint", "inspect", weights, "--json"}, `evil\u001b[2J`},
		{"inspect, folder", []string{"checkpoint", "inspect", copied}, `\x1b[2J`},
		{"inspect, damaged", []string{"checkpoint", "inspect", damaged}, ""},
		{"verify", []string{"checkpoint", "verify", evil}, ""},
		{"import", []string{"checkpoint", "import", weights, "-o", filepath.Join(t.TempDir(), "out"), "--model",
			"simple_cnn"}, ""},
		{"predict", []string{"predict", trained, pictures}, `evil\x1b[2J`},
		{"predict, JSON", []string{"predict", trained, pictures, "--json"}, `evil\u001b[2J`},
		{"predict, classes", []string{"predict", trained, pictures, "--class-names", names}, `"evil\x1b[2J`},
		{"data inspect", []string{"data", "inspect", "--dataset", "images", "--path", pictures}, ""},
		{"data verify", []string{"data", "verify", "--dataset", "images", "--path", pictures}, ""},
		{"eval", []string{"eval", evil}, ""},
		{"analyze", []string{"analyze", evil}, ""},
		{"config show", []string{"config", "show", "--set", "experiment.name=" + hostile}, ""},
		{"unknown key", []string{"config", "show", "--set", hostile + "=1"}, ""},
		{"unknown command", []string{hostile}, ""},
		{"no such file", []string{"config", "show", "-c", filepath.Join(evil, hostile)}, ""},
		{"training on images", []string{"-c", clitest.WriteConfig(t, smallRun), "--set", "experiment.output_dir=" +
			t.TempDir(), "--set", "data.dataset=images", "--set", "data.path=" + pictures}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, messages bytes.Buffer
			code := runLine(t.Context(), c.args, session.Environment{Stdout: &out, Stderr: &messages, Train: run.Train})
			clitest.Harmless(t, "standard output", out.String())
			clitest.Harmless(t, "standard error", messages.String())
			if c.says != "" && !strings.Contains(out.String()+messages.String(), c.says) {
				t.Errorf("exit code %d, the text lacks %q:\n%s%s", code, c.says, out.String(), messages.String())
			}
		})
	}
}

// picturesNamed creates a folder of images with splits and classes, and returns its path. Some files and one class have
// a hostile name, and one image is damaged.
func picturesNamed(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	img := image.NewRGBA(image.Rect(0, 0, 8, 8))
	img.Set(1, 1, color.RGBA{R: 200, A: 255})
	var encoded bytes.Buffer
	if err := png.Encode(&encoded, img); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"train", "val"} {
		for _, class := range []string{"cat", name} {
			folder := filepath.Join(dir, part, class)
			if err := os.MkdirAll(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string][]byte{name + "1.png": encoded.Bytes(),
				name + "2.png": encoded.Bytes()[:40]} {
				if err := os.WriteFile(filepath.Join(folder, file), text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return dir
}
