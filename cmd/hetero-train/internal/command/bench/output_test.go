package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
)

// measured runs a command of bench on the CPU device, with short measurements of the limits, and returns its output.
func measured(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	nativetest.Need(t, "cpu", "libhetero_cpu.so")
	defer func(repeats int, limit time.Duration) { peakRepeats, peakTime = repeats, limit }(peakRepeats, peakTime)
	peakRepeats, peakTime = 1, 50*time.Millisecond // each repeat fills memory larger than the caches
	var out, messages bytes.Buffer
	cmd := New(&cli.App{Env: session.Environment{Stdout: &out, Stderr: &messages, Catalog: parts.BuiltinCatalog}})
	cmd.SetArgs(append(args, "--device", "cpu", "--model", "simple_cnn", "--image-size", "8", "--batch-size", "4",
		"--classes", "10", "--threads", "1", "--steps", "2", "--warmup", "1"))
	if err := cmd.Execute(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, &messages)
	}
	return out.String(), messages.String()
}

// The program must print results to standard output and progress to standard error.
func TestBenchTrainSaysWhatItDoes(t *testing.T) {
	stdout, stderr := measured(t, "train", "--json")
	if !strings.Contains(stderr, "measuring the peak of cpu:0") ||
		!strings.Contains(stderr, "1 warm-up steps, then 2 timed steps") {
		t.Errorf("got %q, want what it does", stderr)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || got["peak_repeats"] != 1.0 {
		t.Errorf("got %v, %v, want one object with the number of repeats", got, err)
	}
}

// bench ops prints its progress to standard error, and one row for each kind of op to standard output.
func TestBenchOpsSaysWhatItDoes(t *testing.T) {
	stdout, stderr := measured(t, "ops")
	for _, want := range []string{"measuring limit 1/6: f32 multiply-adds", "1 warm-up steps, then 2 timed steps",
		"timing every op in 2 steps"} {
		if !strings.Contains(stderr, want) || strings.Contains(stdout, want) {
			t.Errorf("got %q, want %q", stderr, want)
		}
	}
	if !strings.Contains(stdout, "conv") || !strings.Contains(stdout, "of limit") {
		t.Errorf("got %q, want a table of ops", stdout)
	}
}
