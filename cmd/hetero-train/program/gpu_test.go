package program

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// onGPU runs a command as on a machine with GPUs: with the CUDA device compiled for the host, and with a fake driver
// for the same number of GPUs.
func onGPU(t *testing.T, gpus int, cmd *exec.Cmd, set ...string) *exec.Cmd {
	t.Helper()
	built := os.Getenv("HETERO_LIB_DIR")
	if built == "" {
		built = filepath.Join("..", "..", "..", "build", "lib")
	}
	built, err := filepath.Abs(built)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(built, "*.so*"))
	if err != nil {
		t.Fatal(err)
	}
	dir, shim := t.TempDir(), ""
	for _, file := range files {
		name := filepath.Base(file)
		switch name {
		case "libhetero_cuda.so", "libhetero_nccl.so":
			continue
		case "libhetero_cuda_shim.so":
			name, shim = "libhetero_cuda.so", file
		case "libhetero_nccl_shim.so": // NCCL is left out unless a test requests it
			name = "libhetero_nccl_later.so"
		}
		if err := os.Symlink(file, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if shim == "" {
		needtest.Missing(t, "cpu", "no libhetero_cuda_shim.so in "+built)
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "HETERO_LIB_DIR="+dir, fmt.Sprintf("HETERO_SHIM_GPUS=%d", gpus),
		"LD_LIBRARY_PATH="+filepath.Join(built, "fake_driver"), fmt.Sprintf("HETERO_FAKE_DRIVER=gpus=%d", gpus))
	cmd.Env = append(cmd.Env, set...)
	return cmd
}

// onNCCL is like onGPU, with a fake NCCL. fault is the fault that the fake simulates (nccl/shim/fake.cc); "": none.
func onNCCL(t *testing.T, gpus int, cmd *exec.Cmd, fault string) *exec.Cmd {
	t.Helper()
	cmd = onGPU(t, gpus, cmd, "HETERO_FAKE_NCCL="+fault)
	for _, v := range slices.Backward(cmd.Env) {
		if dir, ok := strings.CutPrefix(v, "HETERO_LIB_DIR="); ok {
			if err := os.Rename(filepath.Join(dir, "libhetero_nccl_later.so"),
				filepath.Join(dir, "libhetero_nccl.so")); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	return cmd
}

// With device.kind "auto", the program must log once why it uses the CPU. With "cuda", the same reason must be an
// error.
func TestAutoGoesOnWithoutGPU(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	for _, c := range []struct {
		name  string
		gpus  int
		env   string
		want  string
		ranks []string
	}{
		{"no driver", 1, "HETERO_SHIM_DRIVER=0", "cuda: no driver", []string{"1", "2"}},
		{"no GPU", 0, "", "cuda: no GPU: the driver shows none", []string{"1"}},
		{"none of the list", 0, "CUDA_VISIBLE_DEVICES=7,0", `names 2 GPUs, the driver shows 0: there is no GPU`,
			[]string{"1"}},
		{"hidden", 2, "CUDA_VISIBLE_DEVICES=-1", "hides all GPUs", []string{"1"}},
		{"one that is not there", 1, "CUDA_VISIBLE_DEVICES=0,7", "names 2 GPUs, the driver shows 1", []string{"1"}},
		{"too old", 1, "HETERO_SHIM_ARCH=61", "has compute capability 6.1, want at least 7.5", []string{"2"}},
	} {
		set := []string{c.env}
		if c.name == "no driver" {
			set = append(set, "LD_LIBRARY_PATH=")
		}
		for _, ranks := range c.ranks {
			output := filepath.Join(dir, c.name+ranks)
			auto := finish(t,
				onGPU(t, c.gpus, p.command(output, "device.kind=auto", "train.steps=2", "parallel.ranks="+ranks),
					set...), 0)
			auto.check(t, exit.Done, c.want)
			if n := strings.Count(auto.stderr, c.want); n != 1 {
				t.Errorf("%s, %s ranks: the reason was told %d times, want once:\n%s", c.name, ranks, n, auto.stderr)
			}
			if !strings.Contains(auto.stdout, "device cpu:0") {
				t.Errorf("%s: the CPU did not train:\n%s", c.name, auto.stdout)
			}
		}
		finish(t, onGPU(t, c.gpus, p.command(filepath.Join(dir, "asked"), "device.kind=cuda", "train.steps=2"), set...),
			0).check(t, exit.Usage, c.want)
	}
}

// "auto" must not select a GPU if CUDA_VISIBLE_DEVICES is invalid, even if the GPU can be opened. Command devices must
// show this choice.
func TestDevicesSaysWhatTrainingWouldTake(t *testing.T) {
	p := buildRanks(t)
	run := finish(t, onGPU(t, 1, exec.Command(p.path, "devices", "--json"), "CUDA_VISIBLE_DEVICES=0,7"), 0)
	run.check(t, exit.Done, "")
	if want := `names 2 GPUs, the driver shows 1`; !strings.Contains(run.stdout, want) {
		t.Errorf("%q is not in\n%s", want, run.stdout)
	}
}

// Other processes may compute on these GPUs. Opening a device creates a context on the GPU, and command devices must
// not do so.
func TestDevicesMakesNoContext(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	contexts := filepath.Join(dir, "contexts")
	made := func() bool { _, err := os.Stat(contexts); return err == nil }
	for _, c := range []struct{ set, want string }{
		{"HETERO_SHIM_MODE=0", `"name":"cuda:1","kind":"cuda","auto":false,"available":true,"model":"host shim","isa":"sm_90","memory_bytes":2147483648,"precisions":["f32","bf16","fp16"],"auto_precision":"bf16"`},
		{"HETERO_SHIM_MODE=2", `cuda:1: device unavailable: the GPU's compute mode is Prohibited; allow programs on it: nvidia-smi -i 1 -c DEFAULT"`},
		{"HETERO_SHIM_ARCH=61", `GPU 0 (host shim) has compute capability 6.1, want at least 7.5`},
		{"HETERO_SHIM_CUDNN=version8", `got version 8, want 9`},
	} {
		run := finish(t, onGPU(t, 2, exec.Command(p.path, "devices", "--json"), c.set,
			"HETERO_FAKE_CONTEXTS="+contexts), 0)
		run.check(t, exit.Done, "")
		if !strings.Contains(run.stdout, c.want) || made() {
			t.Errorf("%s: a context was made: %v; %q is not in\n%s", c.set, made(), c.want, run.stdout)
		}
	}
	finish(t, onGPU(t, 1, p.command(dir, "device.kind=cuda", "train.steps=1"), "HETERO_FAKE_CONTEXTS="+contexts),
		0).check(t, exit.Done, "")
	if !made() {
		t.Error("training made no context")
	}
}

// Two ranks may share a GPU only with device.share_gpu. If there are fewer GPUs than ranks, the program must check this
// before rank discovery; otherwise rank discovery must check it.
func TestRanksAreNotPutOnOneGPU(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	for _, c := range []struct {
		gpus int
		set  string
		env  string
		want string
	}{
		{1, "parallel.ranks=2", "", "would share one GPU, GPU-5a5a5a5a"},
		{2, "device.index=1", "", "ranks 0 (process"},
		{2, "parallel.ranks=3", "", "rank 2 of this machine needs its own device cuda"},
		{2, "device.index=2", "", "device.index: got 2, want the number of one of the 2 cuda devices"},
		{1, "parallel.ranks=2", "CUDA_VISIBLE_DEVICES=MIG-1,MIG-1", "would share one GPU, MIG-5a5a5a5a"},
	} {
		set := []string{"device.kind=cuda", "parallel.ranks=2", c.set, "data.batch_size=24", "train.steps=2"}
		finish(t, onGPU(t, c.gpus, p.command(filepath.Join(dir, "run"), set...), c.env), 0).check(t, exit.Usage, c.want)
	}
}

// gpuRun contains the settings of a run on a GPU. The run is small enough for the shim, whose threads are fibers.
var gpuRun = []string{"device.kind=cuda", "train.steps=6", "train.log_interval=1", "train.eval_interval=0"}

// The shim's host cannot access device memory. The program must therefore transfer images, labels, losses, gradients
// and weights only by copies.
func TestRanksOnGPUsTrainAsOne(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	var want outcomeOfRun
	for i, c := range []struct {
		gpus int
		nccl bool
		set  []string
	}{
		{1, false, nil},
		{2, false, []string{"parallel.ranks=2"}},
		{1, false, []string{"parallel.ranks=2", "device.share_gpu=true", "balance.fixed_shares=[5, 3]"}},
		{2, true, []string{"parallel.ranks=2"}},
		{1, true, []string{"parallel.ranks=2", "parallel.backend=nccl", "device.share_gpu=true"}},
	} {
		output := filepath.Join(dir, fmt.Sprint(i))
		cmd, says := p.command(output, append(c.set, gpuRun...)...), ""
		if c.nccl {
			cmd, says = onNCCL(t, c.gpus, cmd, ""), `version=2.28.9`
		} else {
			cmd = onGPU(t, c.gpus, cmd)
		}
		finish(t, cmd, 0).check(t, exit.Done, says)
		got := resultOf(t, filepath.Join(output, "run"))
		if i == 0 {
			want = got
		}
		records, _, err := runtime.ReadMetrics(filepath.Join(output, "run", "logs", runtime.FileName(0)))
		if err != nil || len(records) == 0 {
			t.Fatalf("%v: got %d records and %v", c.set, len(records), err)
		}
		for _, r := range records {
			if r.Exchanges > r.Forward+r.Backward {
				t.Errorf("%v: step %d stood %v in passes of %v: a rank's own time is negative", c.set, r.Iteration,
					r.Exchanges, r.Forward+r.Backward)
			}
		}
		// The computation uses bf16 and divides the samples into other groups, so losses differ slightly.
		if a, b := got.loss(t), want.loss(t); got.Steps != 6 || math.Abs(a-b) > 1e-2*b {
			t.Errorf("%v: got %+v, one GPU gives %+v", c.set, got, want)
		}
	}
}

// NCCL transfers the gradients of all ranks. If it reports an error, all ranks must end.
func TestWhatNCCLRefusesEndsTheRun(t *testing.T) {
	t.Parallel()
	cmd := buildRanks(t).command(t.TempDir(), append([]string{"parallel.ranks=2"}, gpuRun...)...)
	finish(t, onNCCL(t, 2, cmd, "reject:1@3"), 0).check(t, exit.Communication, "invalid usage: it was asked to fail")
}

// If the GPU is lost, the run must end with the exit code of the device. The last checkpoint must be complete, and the
// resumed run must equal a run without the fault.
func TestALostGPUEndsTheRun(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	whole := filepath.Join(dir, "whole")
	// This run also measures the algorithms of kernels. Later runs then select the same algorithms.
	finish(t, onGPU(t, 1, p.command(whole, append(gpuRun, "train.steps=60")...)), 0).check(t, exit.Done, "")
	lost := filepath.Join(dir, "lost")
	set := append(gpuRun, "train.steps=60", "checkpoint.interval_steps=1")
	first := finish(t, onGPU(t, 1, p.command(lost, set...), "HETERO_SHIM_LOST_AFTER=4000"), 0)
	first.check(t, exit.Device, "device failure")
	if saved, err := filepath.Glob(filepath.Join(lost, "run", "checkpoints", "step-*")); err != nil || len(saved) == 0 {
		t.Fatalf("got checkpoints %v, %v, want one before the fault; the run said\n%s", saved, err, first.stderr)
	}
	finish(t, onGPU(t, 1, p.command(lost, append(set, "train.resume=auto")...)), 0).check(t, exit.Done, "")
	if got, want := resultOf(t, filepath.Join(lost, "run")),
		resultOf(t, filepath.Join(whole, "run")); got.Loss != want.Loss || got.Steps != want.Steps {
		t.Errorf("after the fault: got %+v, want %+v", got, want)
	}
}

// The program must detect before the first step that the GPU lacks memory. The error must state the memory of each part
// and the batch that fits.
func TestTooLittleMemoryOfAGPU(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	set := append([]string{"data.batch_size=32"}, gpuRun...)
	got := finish(t, onGPU(t, 1, p.command(dir, set...), "HETERO_SHIM_MEMORY_KIB=128"), 0)
	got.check(t, exit.Device, "a micro-batch of 32 samples needs")
	got.check(t, exit.Device, "samples fit; lower data.batch_size, or raise train.grad_accumulation")
	if strings.Contains(got.stdout, "step 1/") {
		t.Errorf("a step was done:\n%s", got.stdout)
	}
}
