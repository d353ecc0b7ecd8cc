package program

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/inference"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// Exported weights must contain the settings for the preparation of images. A command that prepares images differently
// must warn.
func TestPreprocessingStaysWithTheWeights(t *testing.T) {
	t.Parallel()
	pictures := painted(t, map[string]string{"blue": "blue", "green": "green", "red": "red"})
	images := []string{"data.dataset=images", "data.path=" + pictures, "data.num_samples=0", "model.num_classes=3",
		"train.steps=3"}
	dir, _ := trainSmall(t, append(images, "data.image_size=12", "data.crop_padding=0", "data.random_resized_crop=true",
		"data.mean=[0.1, 0.2, 0.3]", "data.std=[0.5, 0.6, 0.7]")...)
	evaluate := func(model string, more ...string) (loss float64, messages string) {
		t.Helper()
		o := execute(append([]string{"eval", model, "--json", "--split", "all", "--device", "reference", "--set",
			"data.path=" + pictures}, more...))
		var e inference.Evaluation
		if err := json.Unmarshal([]byte(o.stdout), &e); o.code != exit.Done || err != nil {
			t.Fatalf("eval %s: exit code %d: %s%s", model, o.code, o.stdout, o.stderr)
		}
		return float64(e.Loss), o.stderr
	}
	want, messages := evaluate(dir)
	const other, unknown = "prepared in another way", "do not state how"
	if strings.Contains(messages, other) {
		t.Errorf("as in the training: got a warning:\n%s", messages)
	}
	folder := t.TempDir()
	file, again := filepath.Join(folder, "out.safetensors"), filepath.Join(folder, "again.safetensors")
	imported, plain := filepath.Join(folder, "imported"), filepath.Join(folder, "plain")
	model := []string{"--set", "model.channels=[3, 4]"}
	for _, args := range [][]string{
		{"checkpoint", "export", dir, "--output", file},
		append([]string{"checkpoint", "import", file, "--output", again}, model...),
		append([]string{"checkpoint", "import", again, "--output", imported}, model...),
	} {
		if o := execute(args); o.code != exit.Done {
			t.Fatalf("%q: exit code %d: %s", args, o.code, o.stderr)
		}
	}
	set := []string{"--set", "data.dataset=images"}
	if got, messages := evaluate(imported, set...); got != want || strings.Contains(messages, other) ||
		strings.Contains(messages, unknown) {
		t.Errorf("after export and import: got loss %v, want %v without a warning:\n%s", got, want, messages)
	}
	for _, changed := range [][]string{{"--set", "data.image_size=8"},
		{"--set", "data.mean=[0, 0, 0]", "--set", "data.std=[1, 1, 1]"}, {"--set", "data.random_resized_crop=false"}} {
		if _, messages := evaluate(imported, append(changed, set...)...); !strings.Contains(messages, other) {
			t.Errorf("%q: got no warning:\n%s", changed, messages)
		}
	}

	// This run starts from the exported weights.
	p := buildProgram(t)
	p.config = clitest.WriteConfig(t, smallRun)
	for _, from := range []string{file, dir, imported} {
		start := append(images, "data.image_size=12", "model.init_from="+from)
		finish(t, p.command(t.TempDir(), start...), 0).check(t, exit.Done, "trained on images that were "+other)
	}

	// These weights come from another program.
	renameClasses(t, file, filepath.Join(folder, "theirs.safetensors"), []string{"blue", "green", "red"})
	if o := execute(append([]string{"checkpoint", "import", filepath.Join(folder, "theirs.safetensors"), "--output",
		plain}, model...)); o.code != exit.Done {
		t.Fatal(o.stderr)
	}
	if _, messages := evaluate(plain, set...); !strings.Contains(messages, unknown) {
		t.Errorf("weights of another program: got no warning:\n%s", messages)
	}
}

// The test compares the exported files with the settings of the run.
func TestResNetsAreExportedForTimm(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	p.config = clitest.WriteConfig(t, "[experiment]\nname = \"run\"\n[device]\nkind = \"reference\"\n[model]\nname = \"resnet18\"\n[data]\ndataset = \"synthetic_image\"\nimage_size = 33\nrandom_resized_crop = true\nmean = [0.1, 0.2, 0.3]\nstd = [0.5, 0.6, 0.7]\nnum_samples = 2\nbatch_size = 2\n[optimizer]\nname = \"sgd\"\nmomentum = 0.0\n[train]\nsteps = 1\n")
	finish(t, p.command(dir), 0).check(t, exit.Done, "")
	run, folder := filepath.Join(dir, "run"), filepath.Join(dir, "hf")
	if o := execute([]string{"checkpoint", "export", run, "--format", "hf", "--output", folder}); o.code != exit.Done {
		t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	var config struct {
		Architecture string
		Classes      int      `json:"num_classes"`
		Labels       []string `json:"label_names"`
		Pretrained   struct {
			InputSize []int   `json:"input_size"`
			CropPct   float64 `json:"crop_pct"`
			Mean      [3]float64
		} `json:"pretrained_cfg"`
	}
	if err := json.Unmarshal(clitest.ReadFile(t, filepath.Join(folder, "config.json")), &config); err != nil {
		t.Fatal(err)
	}
	const scaled = 33 * 256 / 224
	if c := config; c.Architecture != "resnet18" || c.Classes != 10 || len(c.Labels) != 10 ||
		!slices.Equal(c.Pretrained.InputSize, []int{3, 33, 33}) ||
		int(33/c.Pretrained.CropPct) != scaled || c.Pretrained.Mean != [3]float64{0.1, 0.2, 0.3} {
		t.Errorf("got %+v", c)
	}
	var prepared struct {
		Size map[string]int
		Crop map[string]int `json:"crop_size"`
		Std  [3]float64     `json:"image_std"`
	}
	if err := json.Unmarshal(clitest.ReadFile(t, filepath.Join(folder, "preprocessor_config.json")),
		&prepared); err != nil {
		t.Fatal(err)
	}
	if p := prepared; p.Size["shortest_edge"] != scaled || p.Crop["height"] != 33 ||
		p.Std != [3]float64{0.5, 0.6, 0.7} {
		t.Errorf("got %+v", p)
	}
	// The exported folder must be importable, with the names of the classes.
	imported := filepath.Join(dir, "imported")
	if o := execute([]string{"checkpoint", "import", folder, "--model", "resnet18", "--output",
		imported}); o.code != exit.Done {
		t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	if o := execute([]string{"checkpoint", "export", run, "--format", "hf", "--output", folder + "2", "--vocab",
		"x"}); o.code != exit.Usage || !strings.Contains(o.stderr, "reads no text") {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
}
