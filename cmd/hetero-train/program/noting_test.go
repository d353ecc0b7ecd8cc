package program

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/bench"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/engine/timeline"
)

// benchTrace returns a command that runs bench train with a small network on a GPU, and writes a timeline.
func (p program) benchTrace(file string) *exec.Cmd {
	return exec.Command(p.path, "bench", "train", "--device", "cuda", "--model", "simple_cnn", "--image-size", "8",
		"--batch-size", "4", "--classes", "10", "--steps", "2", "--warmup", "2",
		"--trace", file, "--trace-steps", "3", "--json")
}

// benchTraced is the summary of the timeline in the output of bench train.
type benchTraced struct {
	Trace struct {
		Steps     int
		Explained float64
		GPU       *bench.GPUUse
		Missing   string `json:"gpu_missing"`
	}
}

func readBench(t *testing.T, out ended) (b benchTraced) {
	t.Helper()
	if err := json.Unmarshal([]byte(out.stdout), &b); err != nil {
		t.Fatalf("%v in\n%s", err, out.stdout)
	}
	return b
}

// The timeline must contain the kernels of graphs under the names of layers, and the activity of the GPU and of the
// host.
func TestATimelineOfAGPUShowsItsKernels(t *testing.T) {
	t.Parallel()
	p, file := buildProgram(t), filepath.Join(t.TempDir(), "step.json")
	out := finish(t, onGPU(t, 1, p.benchTrace(file)), 0)
	out.check(t, exit.Done, "")
	got := readBench(t, out).Trace
	g := got.GPU
	if g == nil || got.Steps != 3 || got.Missing != "" || g.Steps != 3 || g.Lost != 0 {
		t.Fatalf("got %+v, use %+v", got, g)
	}
	if g.Busy <= 0 || g.Busy+g.GapTime+g.ShortTime > 1+1e-9 || g.Copies > g.Busy {
		t.Errorf("shares do not add up: %+v", g)
	}
	synchronised, within := 0.0, 0.0
	for _, w := range g.Waits {
		within += w.Within
		if w.Call == "cudaStreamSynchronize" {
			synchronised = w.Count
		}
	}
	if synchronised != 1 || within != 0 || len(g.Waits) != 1 {
		t.Errorf("got host waits %+v, want the one at the end of each step", g.Waits)
	}
	for _, want := range []string{"apply<float, 4>", "copy"} {
		if !slices.ContainsFunc(g.Kernels, func(k bench.GPUKernel) bool { return k.Name == want && k.Count > 0 }) {
			t.Errorf("got kernels %+v, want %s among them", g.Kernels, want)
		}
	}
	threads, found := map[string]bool{}, map[string]int{}
	for _, e := range readTimeline(t, file) {
		if e.Tid < 100 {
			threads[timeline.Track(e.Tid-1).String()] = true
		}
		found[e.Args.Kernel]++
	}
	for _, want := range []string{"steps", "parts", "host"} {
		if !threads[want] {
			t.Errorf("no thread %q in %v", want, threads)
		}
	}
	if threads["stream"] {
		t.Error("launches were started one by one")
	}
	for _, op := range []string{"conv2d", "conv2d_diff_weights", "softmax_cross_entropy", "grad_control"} {
		if found[op] == 0 || found[op]%3 != 0 {
			t.Errorf("got %d kernels of %s in 3 steps", found[op], op)
		}
	}
}

// Without CUPTI, the host must measure each launch separately, and the command must print the reason.
func TestATimelineOfAGPUThatMayNotBeWatched(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	for behaviour, want := range map[string]string{"privileges": "lets only administrators profile",
		"silent": "recorded no kernel"} {
		out := finish(t, onGPU(t, 1, p.benchTrace(filepath.Join(dir, behaviour)), "HETERO_SHIM_CUPTI="+behaviour), 0)
		out.check(t, exit.Done, want)
		if got := readBench(t, out).Trace; got.GPU != nil || got.Steps != 3 || !strings.Contains(got.Missing, want) {
			t.Errorf("%s: got %+v, want a timeline of launches that says %q", behaviour, got, want)
		}
	}
}

// The window of traced steps begins with a step that captures the graphs again. The run must have the same losses as an
// untraced one.
func TestATracedRunOnAGPUTrainsAsOthersDo(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	finish(t, onGPU(t, 1, p.command(filepath.Join(dir, "plain"), gpuRun...)), 0).check(t, exit.Done, "")
	traced := filepath.Join(dir, "traced")
	finish(t,
		onGPU(t, 1, p.command(traced, append([]string{"profile.trace_step=4", "profile.trace_steps=2"}, gpuRun...)...)),
		0).check(t, exit.Done, "timeline written")
	if got, want := resultOf(t, filepath.Join(traced, "run")),
		resultOf(t, filepath.Join(dir, "plain", "run")); got.Loss != want.Loss {
		t.Errorf("final loss: got %v, want that of the run without a timeline, %v", got.Loss, want.Loss)
	}
	kernels := 0
	for _, e := range readTimeline(t, filepath.Join(traced, "run", "logs", observe.TraceFile)) {
		if e.Args.Kernel == "adamw" {
			kernels++
		}
	}
	if kernels != 2 {
		t.Errorf("got %d updates in 2 steps", kernels)
	}
}
