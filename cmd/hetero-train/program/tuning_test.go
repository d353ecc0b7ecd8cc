package program

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/profiler/profiles"
)

// The number of micro-batches and the size of buckets must not change the losses, up to the rounding of f32 sums. A
// second run must use the cached choice. A resumed run must use the choice in its checkpoint.
func TestMicroBatchesAndBucketsAreChosenAtTheStart(t *testing.T) {
	t.Parallel()
	p, dir, cache := buildRanks(t), t.TempDir(), t.TempDir()
	hasFastBF16(t) // skips the test if the CPU library is missing
	p.config = clitest.WriteConfig(t, smallText)
	run := func(name, says string, set ...string) ended {
		t.Helper()
		cmd := p.command(filepath.Join(dir, name),
			append([]string{"experiment.name=run", "device.kind=cpu", "parallel.ranks=2", "train.precision=f32",
				"train.steps=6", "train.log_interval=1",
				"data.batch_size=12", "balance.policy=none", "profile.enabled=true", "profile.at_start=off",
				"checkpoint.interval_steps=3", "schedule.name=constant"}, set...)...)
		cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache)
		out := finish(t, cmd, 0)
		out.check(t, exit.Done, says)
		return out
	}
	run("one", "", "train.grad_accumulation=1")
	want := lossesOf(t, filepath.Join(dir, "one"), 2)
	auto := []string{"train.grad_accumulation=0", "parallel.bucket_cap_mb=0"}
	first := run("auto", "train.grad_accumulation = 0 selects ", auto...)
	for _, says := range []string{"timed=\"1: ", ", 2: ", "parallel.bucket_cap_mb = 0 selects buckets",
		"timed=\"buckets of fitted sizes: "} {
		if !strings.Contains(first.stderr, says) {
			t.Errorf("%q is not in\n%s", says, first.stderr)
		}
	}
	near := func(name string, got []float64) {
		t.Helper()
		if len(got) != len(want) {
			t.Errorf("%s: got %d losses, want %d", name, len(got), len(want))
		}
		for i, loss := range got {
			if math.Abs(loss-want[i]) > 1e-5*want[i] {
				// The tolerance allows for f32 sums in another order: 24 bits, some thousand terms, 6 steps.
				t.Errorf("%s: step %d: got loss %.8f, want %.8f", name, i+1, loss, want[i])
			}
		}
	}
	near("chosen", lossesOf(t, filepath.Join(dir, "auto"), 2))
	run("again", "timed_earlier=", auto...)
	near("from the cache", lossesOf(t, filepath.Join(dir, "again"), 2))
	cache = t.TempDir() // an empty cache: only the checkpoint contains the number of micro-batches
	chosen := regexp.MustCompile(`train\.grad_accumulation = 0 selects \d+ micro-batch`)
	resumed := run("auto", "by the run that it resumes", append(auto, "train.steps=8")...)
	if got, want := chosen.FindString(resumed.stderr), chosen.FindString(first.stderr); got != want || got == "" {
		t.Errorf("resumed: got %q, want %q", got, want)
	}
	if kept, err := filepath.Glob(filepath.Join(cache, "*", "tuning", "*")); err != nil || kept != nil {
		t.Errorf("the resumed run cached %v, %v, although it timed no number of micro-batches", kept, err)
	}
	for _, n := range []string{"2", "3", "6"} { // all numbers of micro-batches that the program can choose
		run("fixed"+n, "", "train.grad_accumulation="+n)
		near(n+" micro-batches", lossesOf(t, filepath.Join(dir, "fixed"+n), 2))
	}
}

func TestAModelWithBatchStatisticsKeepsOneMicroBatch(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	out := finish(t, p.command(dir, "train.grad_accumulation=0", "train.steps=2"), 0)
	out.check(t, exit.Done, "train.grad_accumulation = 0 selects 1 micro-batch: ")
	if !strings.Contains(out.stderr, "another number would change the result") {
		t.Errorf("got %s, want the reason", out.stderr)
	}
}

// If a batch does not fit in the memory, the program must divide it into the smallest number of micro-batches that fit.
func TestABatchThatDoesNotFitIsDivided(t *testing.T) {
	t.Parallel()
	p, cache := buildProgram(t), t.TempDir()
	p.config = clitest.WriteConfig(t, smallText)
	run := func(set ...string) *exec.Cmd {
		cmd := p.command(t.TempDir(),
			append([]string{"device.kind=null", "train.steps=2", "train.eval_interval=0", "train.recompute=off",
				"model.layers=12", "model.heads=4", "model.embedding_size=256", "data.batch_size=192",
				"data.num_samples=384", "data.sequence_length=512"}, set...)...)
		cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache)
		return cmd
	}
	finish(t, run("train.grad_accumulation=1"), 0).check(t, exit.Device, "samples fit")
	out := finish(t, run("train.grad_accumulation=0"), 0)
	out.check(t, exit.Done, "1: does not fit")
}

// A run of one rank must store the profile of its device, as a run of several ranks does.
func TestARunOfOneRankLeavesItsProfile(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	hasFastBF16(t) // skips the test if the CPU library is missing
	finish(t, p.command(dir, "device.kind=cpu", "train.steps=2"), 0).check(t, exit.Done, "")
	got, err := profiles.Load(filepath.Join(dir, "run", "configs", "gpu_profiles.json"))
	if err != nil || len(got.Ranks) != 1 || !(got.Ranks[0].ComputeScore > 0) {
		t.Errorf("got %+v, %v, want the score of one rank", got, err)
	}
	off := filepath.Join(dir, "off")
	finish(t, p.command(off, "device.kind=cpu", "train.steps=2", "profile.at_start=off"), 0).check(t, exit.Done, "")
	if _, err := os.Stat(filepath.Join(off, "run", "configs", "gpu_profiles.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("profile.at_start = off: got %v, want no profile", err)
	}
}
