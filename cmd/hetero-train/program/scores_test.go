package program

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/profiler/profiles"
)

func TestRanksOfAMachineTakeTurns(t *testing.T) {
	members := make([]rendezvous.Member, 6)
	for rank := range members {
		members[rank].Host = []string{"a", "b"}[rank/4] // four on a, two on b
	}
	var got []int
	for rank := range members {
		turn := turnsOf(members, []int{0, 2, 3, 4, 5}, rank)
		if turn.count != 3 {
			t.Errorf("rank %d: got %d turns, want the 3 of machine a", rank, turn.count)
		}
		got = append(got, turn.own)
	}
	if want := []int{0, -1, 1, 2, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("got turns %v, want %v: machines measure at the same time, ranks of one in turns", got, want)
	}
}

func TestPoliciesThatNeedScoresWarnWithoutThem(t *testing.T) {
	for _, c := range []struct {
		policy string
		scores []float64
		want   string
	}{
		{"proportional", nil, "all shares stay equal"},
		{"dynamic", nil, "its static part counts all ranks as equal"},
		{"proportional", []float64{1, 2}, ""},
		{"hybrid", nil, ""},
		{"none", nil, ""},
	} {
		var log bytes.Buffer
		b := &balancing{cfg: &config.Config{}, scores: c.scores, missing: "profile.at_start is off", known: make([]knownRank, 2), options: balancer.Options{}}
		b.cfg.Balance.Policy = c.policy
		b.job = newRun(b.cfg, trainOptions{log: slog.New(slog.NewTextHandler(&log, nil))})
		b.sayShares([]int{1, 1})
		if warned := strings.Contains(log.String(), "has no compute scores (profile.at_start is off)"); warned != (c.want != "") || !strings.Contains(log.String(), c.want) {
			t.Errorf("%s with scores %v: got %q, want a warning with %q", c.policy, c.scores, &log, c.want)
		}
	}
}

// Two ranks without a profile measure one, leave it in the experiment's folder, and use the kept figures the next time. Both are of one type, so that they have one score.
func TestATrainingOfSeveralRanksMakesItsOwnProfile(t *testing.T) {
	p, dir := buildRanks(t), t.TempDir()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	train := func(name string, more ...string) string {
		t.Helper()
		args := append([]string{"train", "--nproc-per-node", "2", "--set", "device.kind=reference", "--set", "train.steps=2", "--set", "data.image_size=8", "--set", "data.batch_size=4",
			"--set", "data.num_samples=8", "--set", "balance.policy=proportional", "--set", "experiment.output_dir=" + dir, "--set", "experiment.name=" + name}, more...)
		cmd := exec.Command(p.path, append(args, more...)...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = io.Discard, &out
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, &out)
		}
		return out.String()
	}
	first := train("first")
	if !strings.Contains(first, "compute scores measured") || !strings.Contains(first, "Node 1: Compute score ") || strings.Contains(first, "Compute score unknown") {
		t.Errorf("without a profile: got %s, want measured scores", first)
	}
	file, err := profiles.Load(filepath.Join(dir, "first", "configs", profiles.RanksFile))
	if err != nil || len(file.Ranks) != 2 || !file.Quick || file.Ranks[0].ComputeScore != file.Ranks[1].ComputeScore || file.Ranks[1].RelativeScore != 1 {
		text, _ := json.Marshal(file)
		t.Errorf("got %s, %v, want a profile of two ranks alike", text, err)
	}
	again := train("again")
	if strings.Contains(again, "compute scores measured") || strings.Contains(again, "Compute score unknown") {
		t.Errorf("with kept figures: got %s, want scores without measuring", again)
	}
	if n := strings.Count(again, "compute score of an earlier run is used"); n != 1 || !strings.Contains(again, `age="less than a minute"`) || !strings.Contains(again, "profiles") {
		t.Errorf("with kept figures: said %d times where the score comes from, want once, with age and file:\n%s", n, again)
	}
	if off := train("off", "--set", "profile.at_start=off"); !strings.Contains(off, "Compute score unknown (profile.at_start is off)") || !strings.Contains(off, "policy proportional has no compute scores") {
		t.Errorf("switched off: got %s, want the reason and a warning", off)
	}
}

// Ranks on unlike CPUs are of two types, whether both are measured or the figures of one are kept.
func TestUnlikeCPUsAreCountedAsTwoTypes(t *testing.T) {
	p := buildRanks(t)
	if !hasFastBF16(t) {
		t.Skip("this CPU may have no more than AVX2: there are no unlike CPUs")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	recent, old := rankOn{kind: "cpu"}, rankOn{"cpu", []string{"HETERO_CPU_ISA=avx2"}}
	set := []string{"model.channels=[4]", "data.image_size=8", "data.batch_size=8", "train.steps=2", "train.precision=f32", "balance.policy=proportional"}
	if got := p.asRanks(t, t.TempDir(), []rankOn{recent, recent}, set...).stderr; !strings.Contains(got, "device_types=1 measured=1") {
		t.Errorf("two CPUs alike: got %s, want one type", got)
	}
	got := p.asRanks(t, t.TempDir(), []rankOn{recent, old}, set...).stderr
	if !strings.Contains(got, "device_types=2 measured=1") || !strings.Contains(got, "compute score of an earlier run is used") {
		t.Errorf("unlike CPUs, one of them known: got %s, want two types of which one is measured", got)
	}
}

func TestAgeText(t *testing.T) {
	for age, want := range map[time.Duration]string{-time.Hour: "less than a minute", 59 * time.Second: "less than a minute", 61 * time.Second: "1 minute", 119 * time.Minute: "119 minutes",
		26 * time.Hour: "26 hours", 71 * time.Hour: "2 days"} {
		if got := ageText(age); got != want {
			t.Errorf("%v: got %q, want %q", age, got, want)
		}
	}
}
