package program

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
)

// The training of the scheduling network must save a checkpoint at its end. Training must be able to continue in the
// same folder.
func TestScheduleTrains(t *testing.T) {
	nativetest.Need(t, "cpu", "libhetero_cpu.so")
	dir := filepath.Join(t.TempDir(), "network")
	for _, c := range []struct {
		episodes, want string
	}{{"1", "episode "}, {"1", "has "}, {"20", "resuming from "}} {
		o := execute([]string{"schedule", "train", "--output", dir, "--episodes", c.episodes})
		if o.code != 0 || !strings.Contains(o.stderr, c.want) ||
			strings.Contains(o.stderr, "the network is not trained") != (c.want == "episode ") {
			t.Fatalf("%s episodes: got exit code %d and %q, want %q", c.episodes, o.code, o.stderr, c.want)
		}
	}
	o := execute([]string{"schedule", "simulate", "--policy", "dqn", "--network", dir, "--device", "reference",
		"--jobs", "10"})
	if o.code != 0 || !strings.Contains(o.stdout, "dqn: 10 jobs") {
		t.Errorf("got exit code %d, %q, %q", o.code, o.stdout, o.stderr)
	}
	step, _ := checkpoint.NewestStep(dir)
	single := execute([]string{"schedule", "simulate", "--policy", "dqn", "--network",
		filepath.Join(dir, checkpoint.StepName(step)), "--device", "reference", "--jobs", "10"})
	if single.code != 0 || single.stdout != o.stdout {
		t.Errorf("the folder of one checkpoint: got exit code %d, %q, %q", single.code, single.stdout, single.stderr)
	}
	cut := filepath.Join(t.TempDir(), "cut")
	if err := os.CopyFS(cut, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	newest, ok := checkpoint.NewestStep(cut)
	if err := os.Truncate(filepath.Join(cut, checkpoint.StepName(newest), "model.safetensors"), 1000); !ok ||
		err != nil {
		t.Fatal(ok, err)
	}
	o = execute([]string{"schedule", "compare", "--policy", "dqn", "--network", cut, "--seeds", "2", "--jobs", "10"})
	if o.code != 0 || strings.Count(o.stderr, checkpoint.StepName(newest)+" skipped") != 1 {
		t.Errorf("a damaged newest network: got exit code %d and %q, want one warning that names it", o.code, o.stderr)
	}
	speeds, trace := gavelFiles(t, goodTrace)
	files := []string{"--speeds", speeds, "--trace", trace, "--gpus", "v100=4,k80=2"}
	other := filepath.Join(t.TempDir(), "other")
	if o := execute(append([]string{"schedule", "train", "--output", other, "--episodes", "20", "--random", "0.5"},
		files...)); o.code != 0 || !strings.Contains(o.stderr, "saved ") {
		t.Errorf("a training with files: got exit code %d, %q", o.code, o.stderr)
	}
	folder := filepath.Join(t.TempDir(), "scores")
	scores := func(dimensions string) outcome {
		return execute(append([]string{"schedule", "train", "--output", folder, "--episodes", "20", "--similarity",
			dimensions}, files...))
	}
	if o := scores("64"); o.code != 0 {
		t.Errorf("a training with scores: got exit code %d and %q", o.code, o.stderr)
	}
	if o := scores("0"); o.code != 2 || !strings.Contains(o.stderr, "another --random, --similarity, ") {
		t.Errorf("a training that resumes without scores: got exit code %d and %q", o.code, o.stderr)
	}
	large := []string{"schedule", "train", "--output", filepath.Join(t.TempDir(), "large"), "--speeds", speeds,
		"--trace", trace, "--gpus"}
	for range 2 { // the first run starts, the second one resumes
		if o := execute(append(large, "v100=120", "--episodes", "1")); o.code != 0 ||
			!strings.Contains(o.stderr, "the replay memory keeps ") {
			t.Errorf("a training on 30 machines: got exit code %d and %q, want a warning about the replay memory",
				o.code, o.stderr)
		}
	}
	if o := execute(append(large, "v100=12000")); o.code != 2 || !strings.Contains(o.stderr, "too many machines") {
		t.Errorf("a training on 3000 machines: got exit code %d and %q", o.code, o.stderr)
	}
	short := filepath.Join(t.TempDir(), "short")
	for _, c := range []struct{ args, want string }{
		{"--learning-rate 0", "want rates from 0 to 1, and one above 0"},
		{"--learning-rate NaN", "want rates from 0 to 1, and one above 0"},
		{"--learning-rate 1e-3,1e-5", "want one number, or FROM,TO,EPISODES"},
		{"--learning-rate 1e-3,0,1 --episodes 2", "a rate of 0 trains nothing"},
		{"--epsilon 1,0.1,0", "want one number, or FROM,TO,EPISODES"},
		{"--epsilon 1.1", "want probabilities from 0 to 1"},
		{"--returns 0", "--returns: got 0, want 1 to"},
		{"--imitate -1", "--imitate: got -1, want at least 0"},
		{"--imitate 5 --alone", "--imitate: got 5 with --alone, want 0"},
		{"--seed 9 --plots " + filepath.Join(short, "plots") + " --output " + dir, "--seed: got 9, want 1"},
		{"--double=false --output " + dir, "--double: got false, want true"},
		{"--learning-rate 1e-4 --output " + dir, "--learning-rate: got 0.0001, want 0.001,1e-05,15000"},
		{"--alone --output " + dir, "was trained on other episodes"},
		{"--ingested --output " + dir, "was trained on other episodes"},
	} {
		// Few episodes, so that the test stays short if the command is not refused.
		args := []string{"schedule", "train", "--episodes", "21"}
		if !strings.Contains(c.args, "--output") {
			args = append(args, "--output", short)
		}
		if o := execute(append(args, strings.Fields(c.args)...)); o.code != 2 || !strings.Contains(o.stderr, c.want) {
			t.Errorf("train %s: got exit code %d and %q, want 2 and %q", c.args, o.code, o.stderr, c.want)
		}
	}
	if _, err := os.Stat(short); err == nil {
		t.Error("a refused training created a folder")
	}
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"train", "--output", other}, 2},
		{[]string{"train", "--random", "0.1", "--output", dir}, 2},
		{[]string{"train", "--random", "2"}, 2},
		{append([]string{"train", "--random", "1", "--output", other}, files...), 2},
		{[]string{"train", "--gpus", "v100=4"}, 2}, {[]string{"train", "--default", "jobs.cpus=4"}, 2},
		{[]string{"train", "--output", filepath.Join(dir, "train.lock")}, 2},
		{[]string{"train", "--similarity", "-1"}, 2}, {[]string{"train", "--similarity", "99999999"}, 2},
		{[]string{"train", "--lambda", "1"}, 2}, {[]string{"train", "--lambda", "0"}, 2},
		{[]string{"train", "--episodes", "0"}, 2}, {[]string{"train", "--save-minutes", "-1"}, 2},
		{[]string{"train", "--device", "tpu"}, 2},
		{[]string{"simulate", "--policy", "dqn", "--device", "reference", "--network", t.TempDir()}, 3},
	} {
		if o := execute(append([]string{"schedule"}, c.args...)); o.code != c.code {
			t.Errorf("%q: got exit code %d and %q, want %d", c.args, o.code, o.stderr, c.code)
		}
	}
}

// A network that was trained with --alone and all facts must have training curves. A comparison must name it by its
// folder.
func TestScheduleTrainsAlone(t *testing.T) {
	nativetest.Need(t, "cpu", "libhetero_cpu.so")
	dir, plots := filepath.Join(t.TempDir(), "a", "alone"), filepath.Join(t.TempDir(), "plots")
	args := []string{"schedule", "train", "--output", dir, "--alone", "--ingested", "--similarity", "64", "--lambda",
		"0.5", "--learning-rate", "1e-4", "--epsilon", "1,0.1,10", "--double=false", "--prioritised=false", "--returns",
		"1", "--plots", plots, "--episodes"}
	for _, episodes := range []string{"10", "20"} {
		if o := execute(append(args, episodes)); o.code != 0 ||
			strings.Contains(o.stderr, "resuming from") != (episodes == "20") {
			t.Fatalf("%s episodes: got exit code %d and %q", episodes, o.code, o.stderr)
		}
	}
	for _, name := range []string{"training.png", "training.svg"} {
		if info, err := os.Stat(filepath.Join(plots, name)); err != nil || info.Size() < 1000 {
			t.Errorf("--plots: %s: got %v, %v", name, info, err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "tensorboard", "events.out.tfevents.*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("TensorBoard: got files %v, %v, want one for each of two runs", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		for _, tag := range []string{"dqn/reward", "dqn/error", "dqn/epsilon", "dqn/learning_rate"} {
			if err != nil || !strings.Contains(string(text), tag) {
				t.Errorf("%s: got no tag %s, %v", file, tag, err)
			}
		}
	}
	name := "dqn:" + dir
	o := execute([]string{"schedule", "compare", "--policy", name + ",dqn", "--baseline", "fcfs," + name, "--jobs",
		"20", "--seeds", "2", "--plots", plots})
	if o.code != 0 || strings.Count(o.stdout, "\n"+name+" ") != 4 || !strings.Contains(o.stdout, "completion x "+name) {
		t.Errorf("got exit code %d, %q and %q, want a row of policy %s in 4 tables", o.code, o.stdout, o.stderr, name)
	}
	if files, err := filepath.Glob(filepath.Join(plots, "gantt-dqn-*alone.svg")); err != nil || len(files) != 1 {
		t.Errorf("--plots: got files %q, %v, want the figure of policy %s", files, err, name)
	}
	explain := func(alone ...string) outcome {
		return execute(append([]string{"schedule", "explain", "--job", "job-3", "--policy", "dqn", "--load", "2"},
			alone...))
	}
	if o := explain("--agents"); o.code != 0 || !strings.Contains(o.stdout, "largest bid of an agent") {
		t.Errorf("explain: got %d, %q with --agents", o.code, o.stdout)
	}
	if with, without := explain("--alone"), explain(); with.code != 0 || without.code != 0 ||
		with.stdout == without.stdout || strings.Contains(with.stdout, "gang") {
		t.Errorf("explain: got %d, %q with --alone, and %d, %q", with.code, with.stdout, without.code, without.stdout)
	}
	for _, c := range []struct{ args, want string }{
		{"simulate --policy srf --alone", "--alone has no effect without policy dqn: got --policy srf"},
		{"simulate --policy srf --agents", "--agents has no effect without policy dqn: got --policy srf"},
		{"simulate --policy dqn:" + dir + " --network " + dir, "--network has no effect without policy dqn"},
		{"compare --policy dqn:", `unknown policy: got "dqn:"`},
		{"compare --policy dqn:" + dir + ",dqn:" + dir + "/", "got dqn:" + dir + " twice"},
		{"simulate --policy dqn --agents --alone=false", "--agents: got --alone=false"},
		{"compare --policy dqn:" + filepath.Join(dir, "none"), "does not exist"},
	} {
		if o := execute(append([]string{"schedule"}, strings.Fields(c.args)...)); o.code != 2 ||
			!strings.Contains(o.stderr, c.want) {
			t.Errorf("%s: got exit code %d and %q, want 2 and %q", c.args, o.code, o.stderr, c.want)
		}
	}
}

// A signal stops the training of the scheduling network, and the same command resumes it. The network must then be
// bit-equal to that of uninterrupted training.
func TestASignalStopsTheTrainingOfASchedulingNetwork(t *testing.T) {
	nativetest.Need(t, "cpu", "libhetero_cpu.so")
	dir, whole := filepath.Join(t.TempDir(), "stopped"), filepath.Join(t.TempDir(), "whole")
	train := func(dir, episodes string) outcome {
		return execute([]string{"schedule", "train", "--output", dir, "--episodes", episodes})
	}
	ended := make(chan outcome)
	go func() { ended <- train(dir, "1000000") }()
	for { // the command catches signals before it creates this file
		if _, err := os.Stat(filepath.Join(dir, "train.lock")); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := sendTo(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if o := <-ended; o.code != exit.Interrupted || !strings.Contains(o.stderr, "saved ") ||
		!strings.Contains(o.stderr, "to resume, run the same command again") {
		t.Fatalf("got exit code %d and %q, want %d and a saved checkpoint", o.code, o.stderr, exit.Interrupted)
	}
	done := func(dir string) (episodes int64, network string) {
		c, _, err := checkpoint.Latest(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		model, err := os.ReadFile(filepath.Join(c.Path, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		return c.State.Counters["episodes"], string(model)
	}
	episodes, before := done(dir)
	to := strconv.FormatInt(episodes+5, 10)
	if o := train(dir, to); o.code != 0 || !strings.Contains(o.stderr, "resuming from ") {
		t.Fatalf("resumed: got exit code %d and %q", o.code, o.stderr)
	}
	if o := train(whole, to); o.code != 0 {
		t.Fatalf("uninterrupted: got exit code %d and %q", o.code, o.stderr)
	}
	_, got := done(dir)
	if _, want := done(whole); got != want || got == before {
		t.Errorf("the resumed network equals the uninterrupted one: %v, and the one before: %v; want true and false",
			got == want, got == before)
	}
}
