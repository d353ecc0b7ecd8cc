package program

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/inference"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/run"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
)

// trainSmall trains smallRun with changed settings in this process. It returns the folder of the run, and the output.
func trainSmall(t *testing.T, set ...string) (dir, stdout string) {
	t.Helper()
	output := t.TempDir()
	args := []string{"-c", clitest.WriteConfig(t, smallRun), "--set", "experiment.output_dir=" + output, "--set",
		"train.steps=20"}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	var out, messages bytes.Buffer
	if code := runLine(context.Background(), args,
		session.Environment{Stdout: &out, Stderr: &messages, Train: run.Train}); code != exit.Done {
		t.Fatalf("training: exit code %d\n%s", code, messages.String())
	}
	return filepath.Join(output, "run"), out.String()
}

func TestEvalRepeatsTheRunsOwnEvaluation(t *testing.T) {
	t.Parallel()
	dir, printed := trainSmall(t)
	for _, path := range []string{dir, filepath.Join(dir, "checkpoints"),
		filepath.Join(dir, "checkpoints", "step-00000020"), filepath.Join(dir, "checkpoints", "latest")} {
		o := execute([]string{"eval", path, "--json"})
		var got inference.Evaluation
		if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || o.code != exit.Done {
			t.Fatalf("%s: exit code %d, %v\n%s", path, o.code, err, o.stderr)
		}
		want := fmt.Sprintf("eval after step 20 (epoch %d) | loss %.4f | top-1 %.2f %% | top-5 %.2f %% | 16 samples",
			got.Epoch, float64(got.Loss), 100*got.Top1, 100*(*got.Top5))
		if got.Step != 20 || got.Samples != 16 || got.Classes != 10 || !strings.Contains(printed, want) {
			t.Errorf("%s: got %+v, want the figures of the run, which said\n%s", path, got, printed)
		}
	}
	if o := execute([]string{"eval", dir, "--split", "train"}); o.code != exit.Done ||
		!strings.Contains(o.stdout, "synthetic_image, train: 80 of 96 images") {
		t.Errorf("--split train: got exit code %d and %s%s", o.code, o.stdout, o.stderr)
	}
	if o := execute([]string{"eval", dir, "--best"}); o.code != exit.Done {
		t.Errorf("--best: got exit code %d and %s", o.code, o.stderr)
	}
	if o := execute([]string{"eval", filepath.Join(dir, "nothing"), "--best"}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "there is no run in ") {
		t.Errorf("--best without a run: got exit code %d and %s", o.code, o.stderr)
	}
}

func TestEvalOfAveragesRepeatsTheRunsOwn(t *testing.T) {
	t.Parallel()
	dir, printed := trainSmall(t, "ema.decay=0.9")
	var got [5]inference.Evaluation
	for i, args := range [][]string{{"--json"}, {"--json", "--ema"}, {"--json", "--best"},
		{"--json", "--best", "--ema"}, {"--json", "--set", "ema.evaluate=false"}} {
		o := execute(append([]string{"eval", dir}, args...))
		if err := json.Unmarshal([]byte(o.stdout), &got[i]); err != nil || o.code != exit.Done {
			t.Fatalf("%q: exit code %d, %v\n%s", args, o.code, err, o.stderr)
		}
		if said := strings.Contains(o.stderr, "add --ema to evaluate the averages"); said != (i%2 == 0 && i < 4) {
			t.Errorf("%q: told that the figures are not the training's: %v\n%s", args, said, o.stderr)
		}
	}
	if want := fmt.Sprintf("eval after step 20 (epoch 1) | loss %.4f", float64(got[1].Loss)); !got[1].Averaged ||
		!strings.Contains(printed, want) || got[0].Loss == got[1].Loss {
		t.Errorf("got %+v and %+v, want that the second is what the run said:\n%s", got[0], got[1], printed)
	}
	without, _ := trainSmall(t)
	if o := execute([]string{"eval", without, "--ema"}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "has no averaged weights") {
		t.Errorf("without averages: got exit code %d and %q", o.code, o.stderr)
	}
}

func TestEvalSaysWhyItCannot(t *testing.T) {
	t.Parallel()
	dir, _ := trainSmall(t)
	newest := filepath.Join(dir, "checkpoints", "step-00000020")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exit.Usage, "want a checkpoint's folder, a run, or -c FILE"},
		{[]string{dir + "x"}, exit.Usage, "no checkpoint"},
		{[]string{filepath.Dir(dir)}, exit.Usage,
			filepath.Dir(dir) + ": no checkpoint: neither a checkpoint nor a folder of checkpoints"},
		{[]string{dir, newest}, exit.Usage, "takes one argument"},
		{[]string{dir, "--split", "test"}, exit.Usage, "want auto, val, train or all"},
		{[]string{dir, "--batch-size", "-1"}, exit.Usage, "--batch-size: got -1"},
		{[]string{dir, "--device", "nosuch"}, exit.Usage, "configuration\n  --device: device.kind: unknown value"},
		{[]string{dir, "--set", "model.name=resnet50"}, exit.Usage,
			"the settings of the checkpoint do not fit --set model.name"},
		{[]string{dir, "--set", "model.channels=[3, 5]"}, exit.Usage, "belongs to another model"},
		{[]string{dir, "--set", "data.num_classes=12"}, exit.Usage, `has no class "class_10", which the data set has`},
		{[]string{dir, "--set", "data.image_size=1"}, exit.Usage, "data.image_size"},
		{[]string{dir, "--set", "optimizer.lr=3"}, exit.Usage, "optimizer.lr has no effect"},
		{[]string{dir, "--set", "parallel.ranks=2"}, exit.Usage, "parallel.ranks has no effect"},
		{[]string{dir, "--device", "null"}, exit.Usage, "computes no values"},
	} {
		o := execute(append([]string{"eval"}, c.args...))
		if o.code != c.code || !strings.Contains(o.stderr, c.says) || o.stdout != "" {
			t.Errorf("%q: got exit code %d, %q and %q; want %d and %q", c.args, o.code, o.stdout, o.stderr, c.code,
				c.says)
		}
	}
	weights := filepath.Join(newest, "model.safetensors")
	text, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-1] ^= 1
	if err := os.WriteFile(weights, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if o := execute([]string{"eval", newest}); o.code != exit.Data || !strings.Contains(o.stderr, "corrupt") {
		t.Errorf("a damaged checkpoint: got exit code %d and %q, want %d", o.code, o.stderr, exit.Data)
	}
	if o := execute([]string{"eval", dir}); o.code != exit.Done || !strings.Contains(o.stderr, "skipped") {
		t.Errorf("a run whose newest checkpoint is damaged: got exit code %d and %q, want the one before, and that it was skipped",
			o.code, o.stderr)
	}
}

// The training data of an imported checkpoint are unknown. The command must ask for data, and must not use default
// data.
func TestEvalOfImportedWeightsWantsTheirData(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "imported")
	if o := execute(append([]string{"checkpoint", "import", writeWeights(t, foreignCNN(t, "", 4)...), "-o", dir},
		smallCNN...)); o.code != exit.Done {
		t.Fatal(o.stderr)
	}
	data := []string{"--set", "data.dataset=synthetic_image", "--set", "data.num_samples=20", "--set",
		"data.val_fraction=0.5", "--device", "reference"}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exit.Usage, "so it has no data settings: want -c FILE, or --set data.dataset=NAME"},
		{append(data, "--set", "data.num_classes=3"), exit.Usage, "has 3 classes, but the model of " +
			filepath.Join(dir, "step-00000000") + " has 4 outputs without names"},
		// These weights are so large that the outputs are not finite.
		{append(data, "--set", "data.num_classes=4"), exit.Diverged, "the mean loss is not finite"},
		{append(data, "--set", "data.num_classes=4", "--json"), exit.Diverged, "the mean loss is not finite"},
	} {
		if o := execute(append([]string{"eval", dir}, c.args...)); o.code != c.code ||
			!strings.Contains(o.stderr, c.says) {
			t.Errorf("%q: got exit code %d and %q, want %d and %q", c.args, o.code, o.stderr, c.code, c.says)
		}
	}
	picture := filepath.Join(t.TempDir(), "red.png")
	writePNG(t, picture, color.RGBA{R: 255, A: 255})
	if o := execute([]string{"predict", dir, picture, "--set", "data.num_classes=4", "--device",
		"reference"}); o.code != exit.Diverged || o.stdout != "" ||
		!strings.Contains(o.stderr, "the model's score of class") {
		t.Errorf("predict: got exit code %d, %q and %q, want %d without a prediction", o.code, o.stdout, o.stderr,
			exit.Diverged)
	}
}

// writePNG writes an image of one color.
func writePNG(t *testing.T, file string, c color.Color) {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 9, 7))
	for i := range 9 * 7 {
		img.Set(i%9, i/9, c)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// colours returns a folder of red and blue images, which a network learns to distinguish within a few steps.
func colours(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for i := range uint8(20) {
		name := string(rune('a'+i)) + ".png"
		writePNG(t, filepath.Join(dir, "red", name), color.RGBA{R: 200 + i, G: i, B: i, A: 255})
		writePNG(t, filepath.Join(dir, "blue", name), color.RGBA{R: i, G: i, B: 200 + i, A: 255})
	}
	return dir
}

func TestPredictNamesWhatItSees(t *testing.T) {
	t.Parallel()
	pictures := colours(t)
	dir, _ := trainSmall(t, "data.dataset=images", "data.path="+pictures, "data.num_samples=0", "model.num_classes=2",
		"train.steps=60", "optimizer.lr=0.02")
	bad := filepath.Join(t.TempDir(), "bad.png")
	if err := os.WriteFile(bad, []byte("no picture"), 0o600); err != nil {
		t.Fatal(err)
	}
	red, gone := filepath.Join(pictures, "red", "c.png"), filepath.Join(pictures, "blue", "zz.png")
	if err := os.Symlink(filepath.Join(pictures, "none.png"), gone); err != nil {
		t.Fatal(err)
	}
	o := execute([]string{"predict", dir, "--json", "--batch-size", "3", red, bad, filepath.Join(pictures, "blue")})
	var got []inference.Prediction
	for line := range strings.Lines(o.stdout) {
		var p inference.Prediction
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		got = append(got, p)
	}
	if o.code != exit.Data || len(got) != 23 || !strings.Contains(o.stderr, "2 of 23 images could not be read") {
		t.Fatalf("got exit code %d, %d predictions and %q, want %d, 23 and that two could not be read", o.code,
			len(got), o.stderr, exit.Data)
	}
	for i, p := range got {
		want := "blue"
		if i == 0 {
			want = "red"
		}
		switch {
		case i == 22 && (p.File != gone || p.Error == "" || p.Top != nil):
			t.Errorf("got %+v, want why %s could not be read", p, gone)
		case i == 1 && (p.File != bad || p.Error == "" || p.Top != nil):
			t.Errorf("got %+v, want why %s could not be read", p, bad)
		case i != 1 && i != 22 &&
			(len(p.Top) != 2 || p.Top[0].Class != want || p.Top[0].Probability < p.Top[1].Probability ||
				math.Abs(p.Top[0].Probability+p.Top[1].Probability-1) > 1e-9):
			t.Errorf("%s: got %+v, want %s first, and probabilities that sum to 1", p.File, p.Top, want)
		}
	}
	if o := execute([]string{"predict", dir, red, "--top", "1"}); o.code != exit.Done ||
		!strings.HasPrefix(o.stdout, red+": red ") || strings.Contains(o.stdout, "blue") {
		t.Errorf("--top 1: got exit code %d and %q", o.code, o.stdout)
	}
	names := clitest.WriteConfig(t, "null\neins\n")
	if o := execute([]string{"predict", dir, red, "--class-names", names}); o.code != exit.Done ||
		!strings.Contains(o.stdout, "eins") {
		t.Errorf("--class-names: got exit code %d and %q", o.code, o.stdout)
	}
}

func TestPredictSaysWhyItCannot(t *testing.T) {
	t.Parallel()
	dir, _ := trainSmall(t)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{dir}, "want a checkpoint or a run, then images"},
		{[]string{dir, filepath.Join(dir, "none.png")}, "no such file"},
		{[]string{dir, t.TempDir()}, "has no image files (.jpg"},
		{[]string{dir, "-", "-"}, "got - twice"},
		{[]string{dir, dir, "--top", "0"}, "--top: got 0"},
		{[]string{dir, dir, "--class-names", clitest.WriteConfig(t, "one\n")},
			"has 1 lines, want one for each of the model's 10 classes"},
	} {
		if o := execute(append([]string{"predict"}, c.args...)); o.code != exit.Usage ||
			!strings.Contains(o.stderr, c.says) || o.stdout != "" {
			t.Errorf("%q: got exit code %d, %q and %q; want 2 and %q", c.args, o.code, o.stdout, o.stderr, c.says)
		}
	}
}
