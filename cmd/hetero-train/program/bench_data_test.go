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
	t.Parallel()
	for want, args := range map[string][]string{
		"--crop: got \"round\"":      {"--crop", "round"},
		"--augment: got \"polish\"":  {"--augment", "polish"},
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

func TestBenchOpsRefusesSettings(t *testing.T) {
	o := execute([]string{"bench", "ops", "--set", "model.layers=2"})
	if o.code != exit.Usage || !strings.Contains(o.stderr, "use command train with train.steps") {
		t.Errorf("--set: got exit code %d and %q", o.code, o.stderr)
	}
}
