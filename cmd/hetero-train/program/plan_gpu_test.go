package program

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/plan"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/device/gpumodel"
	"github.com/hetero-train/hetero-train/engine/golden"
)

// The test compares the step times of plan --device-model h100 with step times that were measured on an H100.
func TestPredictedStepsAreNearTheMeasuredOnes(t *testing.T) {
	limits := measuredLimits(t)
	var table strings.Builder
	for _, want := range gpumodel.Works {
		var environ []string
		if want.Narrow {
			environ = []string{gpumodel.NarrowVariable + "=1"}
		}
		args := append([]string{"plan", "--device-model", "h100", "--samples", "8", "--precision", "bf16", "--json",
			"--set", "optimizer.name=sgd", "--set", "optimizer.momentum=0.9"}, strings.Fields(want.Settings)...)
		o := execute(args, environ...)
		var r plan.Report
		if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || o.code != exit.Done {
			t.Fatalf("%s: exit code %d, %v\n%s", want.Name, o.code, err, o.stderr)
		}
		p := r.Prediction
		if p == nil || p.Measured != (want.Present == 0) || !p.Fits || p.NarrowGradients != want.Narrow {
			t.Fatalf("%s: got %+v", want.Name, p)
		}
		if math.Abs(want.Predicted/want.Measured-1) > 0.1 {
			t.Errorf("%s: predicted %g s, measured %g s, want at most 10 %% apart", want.Name, want.Predicted,
				want.Measured)
		}
		if have := cmp.Or(want.Present, want.Predicted); math.Abs(p.StepSeconds-have) > 0.00001 {
			t.Errorf("%s: predicted %g s, gpumodel.Works has %g s", want.Name, p.StepSeconds, have)
		}
		fmt.Fprintf(&table, "%s\n", want.Name)
		sum := 0.0
		for _, op := range p.Ops {
			fmt.Fprintf(&table, "  %-26s %4.0f launches %7.3f GB %8.1f GFLOP %8.3f ms, limit %7.3f ms\n", op.Op,
				op.Launches, op.Bytes/1e9, op.FLOPs/1e9, 1e3*op.Seconds, 1e3*op.LimitSeconds)
			sum += op.Share
			have, ok := limits[want.Trace+" "+op.Op]
			if want.Trace != "" && op.Measured && (!ok || have.launches != op.Launches ||
				math.Abs(1e6*op.LimitSeconds-have.microseconds) > 0.01*have.microseconds+0.01) {
				t.Errorf("%s: %s: the plan has %g launches with a limit of %g us, the measured step %+v", want.Name,
					op.Op, op.Launches, 1e6*op.LimitSeconds, have)
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("%s: the shares of the ops add up to %g", want.Name, sum)
		}
		fmt.Fprintf(&table, "  step %.3f ms, limit %.3f ms, %.2f GiB\n", 1e3*p.StepSeconds, 1e3*p.LimitSeconds,
			float64(p.Bytes)/(1<<30))
	}
	golden.Check(t, "testdata/plan_device_model.txt", table.String())
}

// limitOf contains the number of launches of one kind of op in a measured step, and the sum of their time limits.
type limitOf struct{ launches, microseconds float64 }

// measuredLimits returns the limits of the measured steps. The keys are "work op".
func measuredLimits(t *testing.T) map[string]limitOf {
	t.Helper()
	text, err := os.ReadFile("../../../engine/device/gpumodel/testdata/h100.tsv")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]limitOf{}
	for _, line := range strings.Split(string(text), "\n") {
		fields := strings.Split(line, "\t")
		if len(fields) != 7 || fields[0] == "work" ||
			strings.HasPrefix(fields[1], "conv2d_diff_weights") && !strings.Contains(fields[1], "16 bits") {
			continue // these are the same launches with results in f32
		}
		launches, err := strconv.ParseFloat(fields[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		limit, err := strconv.ParseFloat(fields[5], 64)
		if err != nil {
			t.Fatal(err)
		}
		op, _, _ := strings.Cut(fields[1], ",")
		l := out[fields[0]+" "+op]
		out[fields[0]+" "+op] = limitOf{l.launches + launches, l.microseconds + limit}
	}
	return out
}

func TestPlanForAGPUFollowsTheSettings(t *testing.T) {
	of := func(gpu string, args ...string) plan.Report {
		t.Helper()
		return planned(t, append([]string{"--device", "auto", "--device-model", gpu}, args...)...)
	}
	launches := func(r plan.Report, name string) (n float64) {
		for _, op := range r.Prediction.Ops {
			if op.Op == name {
				n += op.Launches
			}
		}
		return n
	}
	plain := of("RTX3060")
	p := plain.Prediction
	if plain.Precision != "bf16" || p.GPU.Name != "rtx3060" || p.Measured || p.MemoryBytes != p.GPU.MemoryBytes-1<<30 ||
		plain.DeviceModel != p.GPU.Model || plain.MemoryBytes != p.MemoryBytes || plain.Limit.Bytes != 0 {
		t.Errorf("got %+v of %+v", p, plain)
	}
	if f16 := of("gtx1650"); f16.Precision != "f16" || f16.Prediction.StepSeconds <= p.StepSeconds {
		t.Errorf("got %s and %g s, want f16 and more than %g s", f16.Precision, f16.Prediction.StepSeconds,
			p.StepSeconds)
	}
	if small := of("rtx3060", "--memory", "1KiB"); small.Prediction.Fits || small.LargestFit != 0 ||
		small.Prediction.MemoryBytes != 1<<10 {
		t.Errorf("1 KiB: got %+v, and %d samples fit", small.Prediction, small.LargestFit)
	}
	half := of("rtx3060", "--nproc-per-node", "2", "--set", "model.batch_norm=local").Prediction
	if half.Samples != 4 || p.Samples != 8 || half.StepSeconds >= p.StepSeconds ||
		math.Abs(half.SamplesPerSecond*half.StepSeconds-8) > 1e-9 {
		t.Errorf("two ranks: got %+v, want half of %+v", half, p)
	}
	twice := of("rtx3060", "--set", "train.grad_accumulation=2")
	if launches(twice, "conv2d") != 2*launches(plain, "conv2d") || launches(plain, "conv2d") == 0 ||
		launches(twice, "adamw") != 1 || launches(twice, "binary") != launches(plain, "binary")+1 {
		t.Errorf("two micro-batches: got %+v, want each pass twice of %+v", twice.Prediction.Ops, p.Ops)
	}
	averaged := of("rtx3060", "--set", "ema.decay=0.9", "--set", "ema.interval=4")
	// Weights and statistics are averaged in each fourth step.
	if got := launches(averaged, "moving_average"); got != 2.0/4 {
		t.Errorf("averages of weights: got %g launches per step, want 0.5", got)
	}
	text := execute([]string{"plan", "-c", clitest.WriteConfig(t, smallRun), "--device", "auto", "--device-model",
		"a100"}).stdout
	for _, part := range []string{"predicted step on NVIDIA A100 80GB (SXM), 8 samples", "limit, ms", "predicted speed:",
		"of 78.15 GiB, fits", "EXTRAPOLATED: nothing was measured on this GPU", "(efficiencies of the H100, no bound)",
		"data sheet: products: f32 19.5, bf16 312, f16 312 TFLOP/s; memory: 2039 GB/s, 79.15 GiB; L2 cache: 40 MiB",
		"corrected after this step (before: +13.7 %)", "+49 % (ResNet-50 from GPT-2 alone)", "unknown"} {
		if !strings.Contains(text, part) {
			t.Errorf("got\n%s\nwant %q in it", text, part)
		}
	}
}

// If a step was not measured on a GPU, plan must say so and name its assumptions.
func TestPlanForAGPUMarksWhatWasNotMeasured(t *testing.T) {
	text := func(environ string, args ...string) string {
		t.Helper()
		o := execute(append([]string{"plan", "--device-model", "h100", "--samples", "8", "--precision", "bf16", "--set",
			"optimizer.name=sgd", "--set", "optimizer.momentum=0.9"}, args...), strings.Fields(environ)...)
		if o.code != exit.Done {
			t.Fatalf("%v: exit code %d\n%s", args, o.code, o.stderr)
		}
		return o.stdout
	}
	gpt2 := strings.Fields(gpumodel.Works[2].Settings)
	with := text("", append(gpt2, "--set", "model.dropout=0.1")...)
	for _, part := range []string{"attention *", "attention_diff *", "attention, dropout like attention",
		"attention_diff, dropout like attention_diff", "dropout like binary",
		"EXTRAPOLATED: no step with this model, batch, optimizer, element type and the present kernels"} {
		if !strings.Contains(with, part) {
			t.Errorf("dropout: got\n%s\nwant %q in it", with, part)
		}
	}
	small := text("", "-c", clitest.WriteConfig(t, smallRun), "--device", "auto")
	if !strings.Contains(small, "EXTRAPOLATED: no step with this model, batch") {
		t.Errorf("a small network: got\n%s", small)
	}
	heading := "between ranks, " + gpumodel.NarrowVariable + "=1:"
	narrow := text(gpumodel.NarrowVariable+"=1", gpt2...)
	if !strings.Contains(narrow, heading) {
		t.Errorf("%s: got\n%s\nwant %q in it", gpumodel.NarrowVariable, narrow, heading)
	}
	// The step was measured, so only kernels that changed since then have a mark.
	for line := range strings.Lines(narrow) {
		op, _, marked := strings.Cut(strings.TrimSpace(line), " * ")
		if marked && !slices.ContainsFunc(gpumodel.Changes, func(c gpumodel.Change) bool { return c.Name == op }) {
			t.Errorf("%s: got a mark, want none: it was measured, and has not changed since then", op)
		}
	}
}

func TestPlanForAGPURefuses(t *testing.T) {
	file := clitest.WriteConfig(t, smallRun)
	for _, c := range [][]string{
		{`--device-model: got "v100", want one of h100, `, "v100", "--device", "auto"},
		{`--device-model: got "", want one of h100, `, "", "--device", "auto"},
		{`device.kind: got "reference", want "auto" or "cuda"`, "h100"},
		{`device.kind: got "cpu", want "auto" or "cuda"`, "h100", "--device", "cpu"},
		{"device.share_gpu: got true", "h100", "--set", "device.kind=cuda", "--set", "device.share_gpu=true"},
		{"parallel.cpu_ranks: got 1, want 0", "h100", "--set", "device.kind=auto", "--set", "parallel.cpu_ranks=1"},
		{"GTX 1650 4GB (GDDR5) has no bf16 products", "gtx1650", "--set", "device.kind=auto", "--precision", "bf16"},
	} {
		o := execute(append([]string{"plan", "-c", file, "--device-model"}, c[1:]...))
		if o.code != exit.Usage || !strings.Contains(o.stderr, c[0]) || o.stdout != "" {
			t.Errorf("%q: got exit code %d and %q, want %d and %q", c[1:], o.code, o.stderr, exit.Usage, c[0])
		}
	}
}
