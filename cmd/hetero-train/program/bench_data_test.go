package program

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

func TestBenchDataTellsWhatImagesCost(t *testing.T) {
	o := execute([]string{"bench", "data", "--dataset", "synthetic_image", "--image-size", "16", "--batch-size", "8",
		"--workers", "1",
		"--seconds", "0.000001", "--crop", "padded", "--augment", "randaugment,jitter,erase,mixup,cutmix", "--json"})
	if o.code != exit.Done {
		t.Fatalf("exit %d: %s", o.code, o.stderr)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"images", "images_per_second", "images_per_core_second", "decode_ns", "resample_ns",
		"augment_ns"} {
		if v, ok := got[key].(float64); !ok || v <= 0 {
			t.Errorf("%s: got %v", key, got[key])
		}
	}
}

func TestBenchDataRefusesWhatItDoesNotKnow(t *testing.T) {
	for want, args := range map[string][]string{
		"--crop: got \"round\"":      {"--dataset", "synthetic_image", "--crop", "round"},
		"--augment: got \"polish\"":  {"--dataset", "synthetic_image", "--augment", "polish"},
		"--seconds: got 0":           {"--seconds", "0"},
		"data.dataset":               {"--dataset", "nothing"},
		"samples are mixed in pairs": {"--dataset", "synthetic_image", "--batch-size", "7", "--augment", "mixup"},
	} {
		if o := execute(append([]string{"bench", "data"}, args...)); o.code != exit.Usage ||
			!strings.Contains(o.stderr, want) {
			t.Errorf("%v: exit %d, %s; want %q", args, o.code, o.stderr, want)
		}
	}
}

// The program must print results to standard output and progress to standard error.
func TestBenchTrainSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	hasFastBF16(t) // skips the test if the CPU library is missing
	o := execute([]string{"bench", "train", "--device", "cpu", "--model", "simple_cnn", "--image-size", "8",
		"--batch-size", "4", "--classes", "10", "--threads", "1", "--steps", "2", "--warmup", "1", "--json"})
	if o.code != exit.Done || !strings.Contains(o.stderr, "measuring the peak of cpu:0") ||
		!strings.Contains(o.stderr, "1 warm-up steps, then 2 timed steps") {
		t.Errorf("got exit code %d and %q, want what it does", o.code, o.stderr)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || got["peak_repeats"] != 5.0 {
		t.Errorf("got %v, %v, want one object with the number of repeats", got, err)
	}
}

// bench ops must print its progress to standard error, and one row for each kind of op to standard output.
func TestBenchOpsSaysWhatItDoes(t *testing.T) {
	t.Parallel()   // the command measures limits for some seconds of elapsed time
	hasFastBF16(t) // skips the test if the CPU library is missing
	o := execute([]string{"bench", "ops", "--device", "cpu", "--model", "simple_cnn", "--image-size", "8",
		"--batch-size", "4", "--classes", "10", "--threads", "1", "--steps", "2", "--warmup", "1"})
	for _, want := range []string{"measuring limit 1/6: f32 multiply-adds", "1 warm-up steps, then 2 timed steps",
		"timing every op in 2 steps"} {
		if o.code != exit.Done || !strings.Contains(o.stderr, want) || strings.Contains(o.stdout, want) {
			t.Errorf("got exit code %d and %q, want %q", o.code, o.stderr, want)
		}
	}
	if !strings.Contains(o.stdout, "conv") || !strings.Contains(o.stdout, "of limit") {
		t.Errorf("got %q, want a table of ops", o.stdout)
	}
	o = execute([]string{"bench", "ops", "--set", "model.layers=2"})
	if o.code != exit.Usage || !strings.Contains(o.stderr, "use command train with train.steps") {
		t.Errorf("--set: got exit code %d and %q", o.code, o.stderr)
	}
}
