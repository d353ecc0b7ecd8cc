package program

import (
	"encoding/json"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/plan"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// planned runs plan --json on the reference device.
func planned(t *testing.T, args ...string) plan.Report {
	t.Helper()
	o := execute(append([]string{"plan", "-c", clitest.WriteConfig(t, smallRun), "--json"}, args...))
	var r plan.Report
	err := json.Unmarshal([]byte(o.stdout), &r)
	want := exit.Done
	if r.LargestFit == 0 {
		want = exit.Device
	}
	if err != nil || o.code != want {
		t.Fatalf("%q: exit code %d, want %d, %v\n%s", args, o.code, want, err, o.stderr)
	}
	return r
}

func TestPlanSaysWhatATrainingTakes(t *testing.T) {
	wide := []string{"--set", "data.image_size=32", "--set", "model.channels=[32, 64]"} // each sample needs 0.7 MiB
	all := planned(t, append(wide, "--samples", "64")...).Table[0].Account.HostBytes()
	// plan measures the memory of its process, which may differ between two calls.
	limit := all + 64<<20
	r := planned(t, append(wide, "--memory", strconv.FormatInt(limit, 10))...)
	if r.Model != "simple_cnn" || r.Parameters < 100 || r.Classes != 10 || r.MicroBatch != 8 ||
		r.MemoryBytes != limit || r.Limit.Bytes != limit || r.Limit.Source != "--memory" ||
		r.StepFLOPs != r.ForwardFLOPs+r.BackwardFLOPs || r.ForwardFLOPs <= 0 {
		t.Errorf("got %+v", r)
	}
	if len(r.Ranks) != 1 || r.Ranks[0].Share != 8 || !r.Ranks[0].Fits || r.LargestFit < 8 {
		t.Errorf("got ranks %+v and a largest micro-batch of %d", r.Ranks, r.LargestFit)
	}
	last := 0
	for _, f := range r.Table {
		if f.Samples <= last || f.Bytes() != f.Fixed()+f.Arena {
			t.Errorf("got %+v behind %d samples", f, last)
		}
		a := f.Account
		if fits := a.HostBytes() <= limit; fits != (f.Samples <= r.LargestFit) || fits != a.Fits() {
			t.Errorf("%d samples of %d bytes: fits %v, but %d is the largest", f.Samples, a.HostBytes(), fits,
				r.LargestFit)
		}
		if a.DeviceBytes() != f.Bytes() || a.HostBytes() <= f.Bytes()+f.Usage.Inputs {
			t.Errorf("%d samples: account %v of %d bytes of the device", f.Samples, a, f.Bytes())
		}
		last = f.Samples
	}
	if tiny := planned(t, "--memory", "1MiB"); tiny.LargestFit != 0 || tiny.Ranks[0].Fits {
		t.Errorf("1 MiB: got a largest micro-batch of %d", tiny.LargestFit)
	}
	refusal := regexp.MustCompile(`error: a micro-batch of 1 samples needs \d\S* MiB of memory, but this process may use only 1.0 MiB \(--memory\): .*: no number of samples fits\n$`)
	o := execute([]string{"plan", "-c", clitest.WriteConfig(t, smallRun), "--memory", "1MiB"})
	if o.code != exit.Device || !refusal.MatchString(o.stderr) || !strings.Contains(o.stdout, "0 samples") {
		t.Errorf("1 MiB: got exit code %d, %q", o.code, o.stderr)
	}
	if asked := planned(t, "--samples", "3,5"); len(asked.Table) != 2 || asked.Table[1].Samples != 5 {
		t.Errorf("--samples 3,5: got %+v", asked.Table)
	}
	text := execute([]string{"plan", "-c", clitest.WriteConfig(t, smallRun)}).stdout
	for _, part := range []string{"model simple_cnn", "forward", "independent of the micro-batch", "averages 0.0",
		"workspace", "configured", "process with 8 samples (limit", "program files",
		"of the rest, at most", "largest micro-batch of a rank in"} {
		if !strings.Contains(text, part) {
			t.Errorf("got\n%s\nwant %q in it", text, part)
		}
	}
}

// If plan does not open the files of the data set, it does not know the smaller last step of an epoch. Its output must
// state that this step is not included.
func TestPlanStatesThatTheLastStepIsUnknown(t *testing.T) {
	files := []string{"--set", "data.dataset=images", "--set", "data.path=/nowhere", "--set", "model.num_classes=10"}
	if r := planned(t, append(files, "--set", "data.drop_last=false")...); !strings.Contains(r.LastStep,
		"data.drop_last = false") {
		t.Errorf("got %q, want the reason", r.LastStep)
	}
	if r := planned(t, files...); r.LastStep != "" {
		t.Errorf("got %q for whole batches, want nothing", r.LastStep)
	}
}

func TestPlanOfSeveralRanks(t *testing.T) {
	one := planned(t)
	r := planned(t, "--set", "balance.fixed_shares=[5, 3, 0]")
	if r.Reserved != 0 || len(r.Ranks) != 3 || r.Ranks[0].Share != 5 || r.Ranks[2].Share != 0 ||
		r.Ranks[0].Bytes <= r.Ranks[1].Bytes {
		t.Errorf("got %+v", r.Ranks)
	}
	// With any number of ranks, a batch needs about the same operations. Only the update of the parameters is repeated
	// on every rank.
	if ratio := float64(r.StepFLOPs) / float64(one.StepFLOPs); ratio < 1 || ratio > 1.2 {
		t.Errorf("got %d operations, want a little more than the %d of one rank", r.StepFLOPs, one.StepFLOPs)
	}
	if equal := planned(t, "--nproc-per-node", "2", "--set", "model.batch_norm=local"); len(equal.Ranks) != 2 ||
		equal.Ranks[0].Share != 4 || equal.ReservedFor != 8 || equal.Reserved <= equal.Ranks[0].Bytes {
		t.Errorf("got %+v, reserved %d bytes for %d samples; want equal shares, and room for all samples", equal.Ranks,
			equal.Reserved, equal.ReservedFor)
	}
}

func TestPlanRefuses(t *testing.T) {
	file := clitest.WriteConfig(t, smallRun)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exit.Usage, "got no configuration"},
		{[]string{"-c", file, "--memory", "lots"}, exit.Usage, `--memory: got "lots"`},
		{[]string{"-c", file, "--memory", ""}, exit.Usage, `--memory: got ""`},
		{[]string{"-c", file, "--memory", "-1GiB"}, exit.Usage, "--memory"},
		{[]string{"-c", file, "--samples", "0"}, exit.Usage, "--samples: got 0"},
		{[]string{"-c", file, "--set", "data.image_size=2"}, exit.Usage, "data.image_size"},
		{[]string{"-c", file, "--set", "data.dataset=images", "--set", "data.path=/nowhere"}, exit.Data,
			"set model.num_classes, so that plan does not need the data"},
	} {
		if o := execute(append([]string{"plan"}, c.args...)); o.code != c.code || !strings.Contains(o.stderr, c.says) ||
			o.stdout != "" {
			t.Errorf("%q: got exit code %d and %q, want %d and %q", c.args, o.code, o.stderr, c.code, c.says)
		}
	}
}

// A plan must not draw initial weights: those of gpt2_xl take 6.2 GB and more than a minute of CPU time.
func TestPlanDrawsNoInitialValues(t *testing.T) {
	args := []string{"plan", "--device", "reference", "--memory", "64GiB", "--samples", "1", "--json", "--set", "model.name=gpt2_xl",
		"--set", "data.dataset=synthetic_text", "--set", "data.sequence_length=32", "--set", "data.batch_size=1"}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o := execute(args)
	runtime.ReadMemStats(&after)
	if o.code != exit.Done || !strings.Contains(o.stdout, `"model":"gpt2_xl"`) {
		t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<30 {
		t.Errorf("the plan allocated %d MiB in sum, want at most 1 GiB", got>>20)
	}
}
