package program

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// A run on fallback data must be short, and its schedule must end with the run. The program must report the fallback
// once. If the same command is repeated, it must find the run complete.
func TestARunOnAFallbackIsShortAndSaysSoOnce(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	set := []string{"data.dataset=cifar10", "data.fallback=synthetic_image", "data.download=never", "data.cache_dir=" +
		t.TempDir(), "data.image_size=8", "train.steps=0", "train.epochs=30", "schedule.name=cosine"}
	e := finish(t, p.command(dir, set...), 0)
	e.check(t, exit.Done, "data: trained on synthetic_image instead of cifar10, which is not available")
	if n := strings.Count(e.stdout+e.stderr, "is not available"); n != 1 {
		t.Errorf("said %d times that the data are not available, want once:\n%s%s", n, e.stderr, e.stdout)
	}
	for _, want := range []string{"step 20/20 | ", "done: 20 steps, 2.00 epochs on synthetic_image | ",
		"synthetic_image instead of cifar10\n"} {
		if !strings.Contains(e.stdout, want) {
			t.Errorf("got no %q in\n%s", want, e.stdout)
		}
	}
	if got := string(clitest.ReadFile(t, filepath.Join(dir, "run", "results", "result.json"))); !strings.Contains(got,
		`"dataset": "synthetic_image"`) || !strings.Contains(got, "instead of cifar10") {
		t.Errorf("the result does not say what was trained on:\n%s", got)
	}
	again := finish(t, p.command(dir, set...), 0)
	if again.code != exit.Done || !strings.Contains(again.stdout, "is finished: 20 steps") {
		t.Errorf("typed again: got exit code %d and\n%s%s", again.code, again.stderr, again.stdout)
	}
	longer := finish(t,
		p.command(filepath.Join(dir, "longer"), append(set, "data.fallback_epochs=0", "train.epochs=3")...), 0)
	if !strings.Contains(longer.stdout, "done: 30 steps, 3.00 epochs") {
		t.Errorf("without a limit: got\n%s%s", longer.stderr, longer.stdout)
	}
}

// The program must refuse a number of samples if the list of their order exceeds the memory. Otherwise the system would
// kill the run without a message.
func TestTooManySyntheticSamplesAreRefused(t *testing.T) {
	o := execute([]string{"data", "inspect", "--set", "data.dataset=synthetic_image", "--set",
		"data.num_samples=2147483647"})
	if o.code != exit.Usage || !strings.Contains(o.stderr, "training samples is 2147483647, want 1 to 268435456") {
		t.Errorf("got exit code %d and %q, want %d and the limit", o.code, o.stderr, exit.Usage)
	}
}
