package program

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/profiler/profiles"
)

// Without a profile, two ranks must measure their scores and write them to the folder of the experiment. Both ranks
// have the same type of device, so there is one score. The next run must use the cached figures.
func TestATrainingOfSeveralRanksMakesItsOwnProfile(t *testing.T) {
	p, dir := buildRanks(t), t.TempDir()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	train := func(name string, more ...string) string {
		t.Helper()
		args := append([]string{"train", "--nproc-per-node", "2", "--set", "device.kind=reference", "--set",
			"train.steps=2", "--set", "data.image_size=8", "--set", "data.batch_size=4",
			"--set", "data.num_samples=8", "--set", "balance.policy=proportional", "--set", "experiment.output_dir=" +
				dir, "--set", "experiment.name=" + name}, more...)
		cmd := exec.Command(p.path, append(args, more...)...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = io.Discard, &out
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, &out)
		}
		return out.String()
	}
	first := train("first")
	if !strings.Contains(first, "compute scores measured") || !strings.Contains(first, "Node 1: Compute score ") ||
		strings.Contains(first, "Compute score unknown") {
		t.Errorf("without a profile: got %s, want measured scores", first)
	}
	file, err := profiles.Load(filepath.Join(dir, "first", "configs", profiles.RanksFile))
	if err != nil || len(file.Ranks) != 2 || !file.Quick || file.Ranks[0].ComputeScore != file.Ranks[1].ComputeScore ||
		file.Ranks[1].RelativeScore != 1 {
		text, _ := json.Marshal(file)
		t.Errorf("got %s, %v, want a profile of two ranks alike", text, err)
	}
	again := train("again")
	if strings.Contains(again, "compute scores measured") || strings.Contains(again, "Compute score unknown") {
		t.Errorf("with kept figures: got %s, want scores without measuring", again)
	}
	if n := strings.Count(again, "using the compute score of an earlier run"); n != 1 ||
		!strings.Contains(again, `age="less than a minute"`) || !strings.Contains(again, "profiles") {
		t.Errorf("with kept figures: said %d times where the score comes from, want once, with age and file:\n%s", n,
			again)
	}
	if off := train("off", "--set", "profile.at_start=off"); !strings.Contains(off,
		"Compute score unknown (profile.at_start is off)") ||
		!strings.Contains(off, "policy proportional has no compute scores") {
		t.Errorf("switched off: got %s, want the reason and a warning", off)
	}
}

// Ranks on different CPUs must count as two types, with and without cached figures.
func TestUnlikeCPUsAreCountedAsTwoTypes(t *testing.T) {
	p := buildRanks(t)
	if !hasFastBF16(t) {
		needtest.Missing(t, "bf16", "this CPU may have no more than AVX2, so there are no unlike CPUs")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	recent, old := rankOn{kind: "cpu"}, rankOn{"cpu", []string{"HETERO_CPU_ISA=avx2"}}
	set := []string{"model.channels=[4]", "data.image_size=8", "data.batch_size=8", "train.steps=2",
		"train.precision=f32", "balance.policy=proportional"}
	if got := p.asRanks(t, t.TempDir(), []rankOn{recent, recent}, set...).stderr; !strings.Contains(got,
		"device_types=1 measured=1") {
		t.Errorf("two CPUs alike: got %s, want one type", got)
	}
	got := p.asRanks(t, t.TempDir(), []rankOn{recent, old}, set...).stderr
	if !strings.Contains(got, "device_types=2 measured=1") ||
		!strings.Contains(got, "using the compute score of an earlier run") {
		t.Errorf("unlike CPUs, one of them known: got %s, want two types of which one is measured", got)
	}
}
