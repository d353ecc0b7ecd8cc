//go:build linux

package program

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/plan"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/memory"
)

// The real program under RLIMIT_DATA: plan promises a batch, training refuses a larger one with the same figure before
// it allocates, and trains with a batch that fits.
func TestALimitOfTheProcessLimitsBatches(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	const kib = 320 << 10
	limited := func(args ...string) *exec.Cmd {
		args = append([]string{"-c", `ulimit -d ` + strconv.Itoa(kib) + ` && exec "$@"`, "sh", p.path}, args...)
		return exec.Command("/bin/sh", args...)
	}
	set := func(batch, output string) []string {
		return []string{"-c", p.config, "--set", "data.image_size=32", "--set", "model.channels=[3]", "--set",
			"data.batch_size=" + batch, "--set", "data.num_samples=" + batch, "--set", "train.steps=1", "--set", "profile.at_start=off", "--set",
			"experiment.output_dir=" + output}
	}
	out, err := limited(append([]string{"plan", "--json", "--samples", "1"}, set("8", t.TempDir())...)...).Output()
	var report plan.Report
	if parseErr := json.Unmarshal(out, &report); err != nil || parseErr != nil {
		t.Fatalf("plan: %v, %v", err, parseErr)
	}
	if report.Limit.Source != "RLIMIT_DATA" || report.LargestFit < 10 || report.Limit.Bytes > kib<<10 {
		t.Fatalf("plan: got limit %+v and a largest micro-batch of %d", report.Limit, report.LargestFit)
	}
	text, err := limited(append([]string{"train"}, set("20000", t.TempDir())...)...).CombinedOutput()
	found := regexp.MustCompile(`a micro-batch of 20000 samples needs \S+ GiB of memory, but this process may use only \S+ MiB \(RLIMIT_DATA\): activations .* program .*: at most (\d+) samples fit; lower data.batch_size`).FindSubmatch(text)
	if code := exitOf(t, err); code != exit.Device || found == nil {
		t.Fatalf("20000 samples: got exit code %d and %s", code, text)
	}
	// RLIMIT_DATA also counts the addresses of stacks, and training has more threads than a plan.
	fit, _ := strconv.Atoi(string(found[1]))
	if off := float64(fit)/float64(report.LargestFit) - 1; off < -0.3 || off > 0.1 {
		t.Errorf("training says that %d samples fit, the plan %d", fit, report.LargestFit)
	}
	// Go reserves addresses in steps of 64 MiB, which count.
	text, err = limited(append([]string{"train"}, set(strconv.Itoa(fit/4), t.TempDir())...)...).CombinedOutput()
	if code := exitOf(t, err); code != 0 || !strings.Contains(string(text), "memory planned: ") {
		t.Errorf("%d samples: got exit code %d and %s", fit/4, code, text)
	}
	if a := report.Table[0].Account; memory.Sum(a.Host) < 5<<20 || !a.Unified {
		t.Errorf("got account %+v", a)
	}
}
