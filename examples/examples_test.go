// Package examples contains programs that use this module as a library. Each folder is a separate module.
package examples

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/nativelib"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// mostLines is the largest number of lines of an example.
const mostLines = 75

// common contains the settings of a training run that takes less than a second.
var common = []string{"device.kind=reference", "model.name=simple_cnn", "model.channels=[4]", "data.num_samples=96",
	"data.batch_size=12", "data.image_size=8", "data.crop_padding=0", "train.steps=12",
	"train.eval_interval=0", "optimizer.lr=0.05", "schedule.name=constant", "experiment.name=run"}

func TestExamplesTrain(t *testing.T) {
	needtest.NotShort(t, "builds and runs programs, which takes seconds")
	ranks := 2
	if _, err := nativelib.Find("libhetero_shm.so"); err != nil {
		if needtest.Required(t, "shm") {
			t.Fatal(err)
		}
		ranks = 1 // ranks of one machine communicate through shared memory
	}
	for _, c := range []struct {
		folder string
		set    []string
		gone   []string // keys in common that do not suit the example
		chance float64
	}{
		// The initial loss is near the logarithm of the number of classes.
		{"model", []string{"model.name=separable", "model.channels=[8, 8]", "data.num_classes=2"}, nil, 0.69},
		{"dataset", []string{"data.dataset=bars", "data.noise=16"}, nil, 0.69},
		{"op", []string{"model.name=swish", "data.num_classes=2"}, []string{"model.channels"}, 0.69},
		{"policy", []string{"balance.policy=recent", "balance.inertia=0.25", "balance.interval=4",
			"data.num_classes=2"}, nil, 0.69},
		{"text", []string{"model.name=bigram", "data.dataset=counting", "data.mistakes=1", "schedule.warmup_steps=0"},
			[]string{"model.channels", "data.num_samples", "data.image_size", "data.crop_padding"}, 2.3},
	} {
		t.Run(c.folder, func(t *testing.T) {
			t.Parallel()
			shortEnough(t, filepath.Join(c.folder, "main.go"))
			dir := t.TempDir()
			program := filepath.Join(dir, "train")
			run(t, c.folder, nil, "go", "build", "-ldflags=-s -w -extldflags=-Wl,-z,lazy", "-o", program, ".")
			var args []string
			for _, set := range append(slices.Clone(common),
				append(c.set, "experiment.output_dir="+dir, fmt.Sprint("parallel.ranks=", ranks))...) {
				if key, _, _ := strings.Cut(set, "="); !slices.Contains(c.gone, key) {
					args = append(args, "--set", set)
				}
			}
			run(t, dir, []string{"XDG_CACHE_HOME=" + dir}, program, args...)
			text, err := os.ReadFile(filepath.Join(dir, "run", "results", "result.json"))
			if err != nil {
				t.Fatal(err)
			}
			var result struct {
				Steps, Ranks int
				Loss         float64 `json:"final_train_loss"`
			}
			if err := json.Unmarshal(text, &result); err != nil {
				t.Fatal(err)
			}
			if result.Steps != 12 || result.Ranks != ranks || !(result.Loss < c.chance) {
				t.Errorf("got %d steps of %d ranks and a loss of %g, want 12, %d and less than %g", result.Steps,
					result.Ranks, result.Loss, ranks, c.chance)
			}
		})
	}
}

func TestOpExamplePassesItsOwnTest(t *testing.T) {
	needtest.NotShort(t, "compiles a test, which takes seconds")
	run(t, "op", nil, "go", "test", "-count=1", "-vet=off", ".")
}

func shortEnough(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(text, []byte("\n")); lines > mostLines {
		t.Errorf("%s has %d lines, want at most %d", file, lines, mostLines)
	}
}

// run runs a command in a folder. Go takes modules only from the module cache.
func run(t *testing.T, dir string, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append(env, "GOPROXY=off", "GOFLAGS=-mod=readonly", "GOWORK=off")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}
