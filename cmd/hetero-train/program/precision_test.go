package program

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// mixedRun contains settings of a network whose memory layouts differ between devices. The network is small enough for
// the shim, whose threads are fibers.
var mixedRun = []string{"model.channels=[16, 32]", "model.dropout=0.0", "data.image_size=8", "train.steps=12",
	"train.log_interval=1", "train.eval_interval=0",
	"optimizer.name=sgd", "optimizer.lr=0.01"}

// rankOn describes one rank that a launcher starts, with its environment.
type rankOn struct {
	kind string   // value of device.kind
	env  []string // environment variables, NAME=value
}

// asRanks runs one process per entry of ranks and returns the result of rank 0. All ranks must succeed.
func (p program) asRanks(t *testing.T, output string, ranks []rankOn, set ...string) ended {
	t.Helper()
	port := porttest.Free(t)
	gpus := 0
	for _, r := range ranks {
		if r.kind == "cuda" {
			gpus = len(ranks) // each rank uses the GPU whose number is its rank
		}
	}
	command := func(rank int) *exec.Cmd {
		r := ranks[rank]
		cmd := asRank(p.command(output, append(set, "device.kind="+r.kind)...), rank, len(ranks), port)
		cmd.Env = append(cmd.Env, fmt.Sprint("LOCAL_RANK=", rank), fmt.Sprint("LOCAL_WORLD_SIZE=", len(ranks)))
		cmd.Env = append(cmd.Env, r.env...)
		if r.kind == "cuda" {
			cmd = onGPU(t, gpus, cmd, r.env...)
		}
		return cmd
	}
	others := make([]*exec.Cmd, len(ranks))
	for rank := 1; rank < len(ranks); rank++ {
		others[rank] = command(rank)
		others[rank].Stderr = os.Stderr
		if err := others[rank].Start(); err != nil {
			t.Fatal(err)
		}
	}
	lead := finish(t, command(0), 0)
	for rank := 1; rank < len(ranks); rank++ {
		if code := exitOf(t, others[rank].Wait()); code != exit.Done {
			t.Errorf("rank %d: got exit code %d", rank, code)
		}
	}
	lead.check(t, exit.Done, "")
	return lead
}

// lossesOf returns the mean loss of each step of a run, over all ranks.
func lossesOf(t *testing.T, dir string, ranks int) []float64 {
	t.Helper()
	var losses []float64
	samples := map[int]float64{}
	for rank := range ranks {
		records, damaged, err := runtime.ReadMetrics(filepath.Join(dir, "run", "logs", runtime.FileName(rank)))
		if err != nil || damaged != 0 {
			t.Fatalf("rank %d: %d damaged records, %v", rank, damaged, err)
		}
		for i, r := range records {
			if rank == 0 {
				losses = append(losses, 0)
			}
			if n := float64(r.BatchSize); n > 0 {
				losses[i] += n * r.Values[telemetry.Loss]
				samples[i] += n
			}
		}
	}
	for i := range losses {
		losses[i] /= samples[i]
	}
	return losses
}

// An old CPU computes in f32, an old GPU in fp16, and recent devices in bf16. At the end of the run, the ranks compare
// hashes of their parameters. The losses must equal the losses of runs with one precision, up to rounding.
// bf16 has 8 significant bits, so after one step a loss is within 1 % of the f32 loss. The difference grows slowly over
// the twelve steps of the test, so the limit is 3 %. If ranks had different loss scales, the losses would differ by
// factors.
func TestUnlikeDevicesTrainTogetherWithDefaults(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	fast := hasFastBF16(t)
	old, recent := rankOn{"cpu", []string{"HETERO_CPU_ISA=avx2"}}, rankOn{kind: "cpu"}
	oldGPU, newGPU := rankOn{"cuda", []string{"HETERO_SHIM_ARCH=75"}}, rankOn{"cuda", []string{"HETERO_SHIM_ARCH=90"}}
	var curve []float64
	for _, c := range []struct {
		name  string
		ranks []rankOn
		set   []string
		says  string
		keeps string // expected precision in result.json
	}{
		// The other runs are compared with this one.
		{"f32", []rankOn{recent}, []string{"train.precision=f32"}, "", "f32"},
		{"bf16", []rankOn{recent}, []string{"train.precision=bf16"}, "", "bf16"},
		{"fp16", []rankOn{newGPU}, []string{"train.precision=fp16"}, "", "f16"},
		{"CPUs", []rankOn{recent, old}, []string{"balance.fixed_shares=[5, 3]"}, "", "bf16 (rank 0), f32 (rank 1)"},
		{"CPUs, all set", []rankOn{recent, old}, []string{"balance.fixed_shares=[5, 3]", "train.precision=bf16"}, "",
			"bf16"},
		{"GPUs and a CPU", []rankOn{newGPU, oldGPU, old}, []string{"balance.fixed_shares=[2, 1, 5]"}, "",
			"bf16 (rank 0), f16 (rank 1), f32 (rank 2)"},
		{"the old GPU leads", []rankOn{oldGPU, old}, []string{"balance.fixed_shares=[3, 5]"}, "",
			"f16 (rank 0), f32 (rank 1)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "CPUs" && !fast {
				needtest.Missing(t, "bf16", "there are no unlike CPU ranks")
			}
			output := filepath.Join(dir, c.name)
			set := append(slices.Clone(mixedRun), "model.batch_norm=sync")
			if c.name == "CPUs" { // the faster precision depends on the processor
				cache := t.TempDir()
				for i := range c.ranks {
					c.ranks[i].env = append(slices.Clone(c.ranks[i].env), "XDG_CACHE_HOME="+cache)
				}
				p.asRanks(t, filepath.Join(dir, "timed"), c.ranks, append(set, c.set...)...)
				asIfFastest(t, cache, "bf16")
			}
			lead := p.asRanks(t, output, c.ranks, append(set, c.set...)...)
			said := strings.Count(lead.stderr, "ranks compute in different types: "+c.keeps)
			if want := strings.Count(c.keeps, "(") / max(strings.Count(c.keeps, "("), 1); said != want {
				t.Errorf("different types were logged %d times, want %d:\n%s", said, want, lead.stderr)
			}
			if text := string(
				clitest.ReadFile(t, filepath.Join(output, "run", "results", "result.json"))); !strings.Contains(text,
				`"precision": "`+c.keeps+`"`) {
				t.Errorf("got %s, want precision %q", text, c.keeps)
			}
			got := lossesOf(t, output, len(c.ranks))
			if curve == nil {
				curve = got
			}
			t.Logf("%.4f", got)
			for i, loss := range got {
				if !(math.Abs(loss-curve[i]) <= 0.03*curve[i]) {
					t.Errorf("step %d: loss %.5f, in f32 %.5f", i+1, loss, curve[i])
				}
			}
		})
	}
}

// hasFastBF16 reports whether this machine's CPU computes bf16 in hardware.
func hasFastBF16(t *testing.T) bool {
	t.Helper()
	dev, err := cpu.Driver{}.Open(0, device.Options{Threads: 1})
	if err != nil {
		needtest.Missing(t, "cpu", err)
	}
	defer dev.Close()
	return dev.Info().FastBF16
}

// A run on GPUs and CPUs starts with one command. The last ranks of the machine must use the CPU. The ranks compare
// hashes of their parameters at the end of the run.
func TestGPUAndCPURanksStartWithOneCommand(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	hasFastBF16(t) // skips the test if there is no CPU device
	output := filepath.Join(dir, "mixed")
	set := append(slices.Clone(mixedRun), "device.kind=auto", "parallel.cpu_ranks=1", "balance.fixed_shares=[3, 5]",
		"model.batch_norm=sync")
	run := finish(t, onGPU(t, 1, p.command(output, set...), "HETERO_SHIM_ARCH=75", "HETERO_CPU_ISA=avx2"), 0)
	run.check(t, exit.Done, "ranks compute in different types: f16 (rank 0), f32 (rank 1)")
	for _, says := range []string{"device cuda:0", "starts 2 ranks"} {
		if !strings.Contains(run.stdout+run.stderr, says) {
			t.Errorf("%q is not in\n%s\n%s", says, run.stdout, run.stderr)
		}
	}
	if got := resultOf(t, filepath.Join(output, "run")); got.SamplesSeen != 8*12 {
		t.Errorf("got %+v, want 12 steps of 8 samples", got)
	}
	for _, c := range []struct {
		name string
		gpus int
		set  []string
		env  []string
		code int
		says string
	}{
		{"no GPU", 0, []string{"parallel.cpu_ranks=2", "data.batch_size=8"}, nil, exit.Done, "starts 2 ranks"},
		{"ranks counted out", 2, []string{"parallel.ranks=3", "parallel.cpu_ranks=1", "balance.fixed_shares=[2, 2, 4]"},
			nil, exit.Done, "starts 3 ranks"},
		{"too few GPUs", 1, []string{"parallel.ranks=3", "parallel.cpu_ranks=1", "data.batch_size=9"}, nil, exit.Usage,
			""},
		{"fp16 on all", 1, []string{"parallel.cpu_ranks=1", "train.precision=fp16"}, nil, exit.Usage,
			`train.precision: device cpu:0 cannot compute in "fp16"`},
		{"NCCL", 1, []string{"parallel.cpu_ranks=1", "parallel.backend=nccl"}, nil, exit.Usage,
			"NCCL needs NVIDIA GPUs"},
		{"an unknown place", 1, []string{"parallel.cpu_ranks=1"}, []string{
			"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1"}, exit.Usage, "set LOCAL_RANK and LOCAL_WORLD_SIZE"},
	} {
		set := append(slices.Clone(mixedRun), "device.kind=auto", "train.steps=2")
		run := finish(t, onGPU(t, c.gpus, p.command(filepath.Join(dir, c.name), append(set, c.set...)...), c.env...), 0)
		run.check(t, c.code, c.says)
	}
}

// asIfFastest changes the timings in a cache, so that dt is the fastest precision.
func asIfFastest(t *testing.T, cache, dt string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(cache, "hetero-train", "precision", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("got kept choices %v, %v, want at least one", files, err)
	}
	for _, file := range files {
		text := string(clitest.ReadFile(t, file))
		for _, other := range []string{"f32", "bf16"} {
			text = strings.Replace(text, `"type":"`+other+`"`, `"type":"`+dt+`"`, 1)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A resumed run must keep its precision, although the cached timings can change between two runs.
func TestAResumedRunKeepsItsType(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	if !hasFastBF16(t) {
		needtest.Missing(t, "bf16", "there is one type to choose from")
	}
	var more []string // environment of the runs
	run := func(name, cache, says string, set ...string) (precision string) {
		t.Helper()
		output := filepath.Join(dir, name)
		cmd := p.command(output,
			append(append(slices.Clone(mixedRun), "device.kind=cpu", "train.steps=4", "profile.at_start=off"),
				set...)...)
		cmd.Env = append(append(os.Environ(), "XDG_CACHE_HOME="+cache), more...)
		finish(t, cmd, 0).check(t, exit.Done, says)
		_, after, _ := strings.Cut(string(clitest.ReadFile(t, filepath.Join(output, "run", "results", "result.json"))),
			`"precision": "`)
		precision, _, _ = strings.Cut(after, `"`)
		return precision
	}
	timed := filepath.Join(dir, "timed cache")
	run("timed", timed, "train.precision = \"auto\" selects ")
	files, err := filepath.Glob(filepath.Join(timed, "hetero-train", "precision", "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got kept choices %v, %v, want one", files, err)
	}
	asIf := func(dt string) (cache string) {
		cache = t.TempDir()
		path := filepath.Join(cache, "hetero-train", "precision", filepath.Base(files[0]))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, clitest.ReadFile(t, files[0]), 0o644)); err != nil {
			t.Fatal(err)
		}
		asIfFastest(t, cache, dt)
		return cache
	}
	before, now := asIf("f32"), asIf("bf16")
	run("whole", before, "", "train.steps=8")
	if got := run("cut", before, ""); got != "f32" {
		t.Errorf("got a run in %s, want the kept choice, f32", got)
	}
	if got := run("cut", now, "", "train.steps=8"); got != "f32" {
		t.Errorf("a run that was begun in f32 went on in %s", got)
	}
	got, want := resultOf(t, filepath.Join(dir, "cut", "run")), resultOf(t, filepath.Join(dir, "whole", "run"))
	if got.Loss != want.Loss {
		t.Errorf("the resumed run ends with loss %v, one that never stopped with %v", got.Loss, want.Loss)
	}
	if got := run("fresh", now, ""); got != "bf16" {
		t.Errorf("a fresh run is in %s, want bf16", got)
	}
	eval := exec.Command(p.path, "eval", filepath.Join(dir, "cut", "run"), "--json")
	eval.Env = append(os.Environ(), "XDG_CACHE_HOME="+now)
	if evaluated := finish(t, eval, 0); !strings.Contains(evaluated.stdout, `"precision":"f32"`) {
		t.Errorf("eval of a run in f32: got %d, %s%s", evaluated.code, evaluated.stdout, evaluated.stderr)
	}
	// If the CPU does not support the precision of the run, the run must resume in another precision, and log this.
	more = []string{"HETERO_CPU_ISA=avx2"}
	if got := run("fresh", now, "the checkpoint was trained in bf16, and the run continues in f32",
		"train.steps=6"); got != "f32" {
		t.Errorf("on a CPU without bf16: got %s", got)
	}
}
