package program

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func TestSelftestChecksADevice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "result.json")
	o := execute([]string{"selftest", "--device", "null,reference", "--run", "/(streams|values)/(copies|pool)", "--json", file})
	if o.code != exit.Done || !strings.Contains(o.stdout, "reference  values     ok") || !strings.Contains(o.stdout, "null       streams    ok") ||
		!strings.Contains(o.stdout, "checks passed, 0 failed, 0 skipped") {
		t.Errorf("got exit code %d and\n%s%s", o.code, o.stdout, o.stderr)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got selfReport
	if err := json.Unmarshal(text, &got); err != nil || got.Passed < 50 || got.Failed != 0 || len(got.Suites) != 2 || got.Program != version.Text() {
		t.Errorf("got %v, %d passed, %d failed, %d suites; want those that were shown", err, got.Passed, got.Failed, len(got.Suites))
	}
	if o := execute([]string{"selftest", "--device", "local", "--run", "/order/(barrier|events)", "--json", "-"}); o.code != exit.Done || json.Unmarshal([]byte(o.stdout), &got) != nil || got.Passed < 1 {
		t.Errorf("communicator: got exit code %d, %s%s", o.code, o.stdout, o.stderr)
	}
}

func TestSelftestNeedsWhatIsRequired(t *testing.T) {
	t.Setenv("HETERO_LIB_DIR", t.TempDir()) // empty: there is no CPU device
	args := []string{"selftest", "--device", "cpu", "--device", "local", "--run", "/order"}
	if o := execute(args); o.code != exit.Done || !strings.Contains(o.stdout, "cpu        not there: device unavailable") {
		t.Errorf("got exit code %d and\n%s%s", o.code, o.stdout, o.stderr)
	}
	if o := execute(args, "HETERO_REQUIRE=cpu"); o.code != exit.Device || !strings.Contains(o.stderr, "selftest: failed: cpu") {
		t.Errorf("HETERO_REQUIRE=cpu: got exit code %d and\n%s", o.code, o.stderr)
	}
	if o := execute([]string{"selftest", "--device", "local", "--run", "/order"}, "HETERO_REQUIRE=shm,local"); o.code != exit.Communication || !strings.Contains(o.stderr, "selftest: failed: shm") {
		t.Errorf("HETERO_REQUIRE=shm,local: got exit code %d and\n%s", o.code, o.stderr)
	}
	for _, names := range []string{"gpu", "local,cppu"} {
		o := execute([]string{"selftest", "--device", "local", "--run", "/order"}, "HETERO_REQUIRE="+names)
		if o.code != exit.Usage || !strings.Contains(o.stderr, "HETERO_REQUIRE: nothing proves") {
			t.Errorf("HETERO_REQUIRE=%s: got exit code %d and\n%s", names, o.code, o.stderr)
		}
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--device", "gpu"}, `--device: got "gpu", want auto, all, cuda, cpu, reference, null, local, shm, gloo, nccl`},
		{[]string{"--run", "("}, "--run"},
		{[]string{"--limit", "-1s"}, "--limit: got -1s, want more than 0s"},
		{[]string{"--device", "null", "--run", "nothing"}, "nothing was checked"},
		{[]string{"--set", "train.epochs=3"}, "describe runs"},
	} {
		if o := execute(append([]string{"selftest"}, c.args...)); o.code != exit.Usage || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%q: got exit code %d and %q, want 2 and %q", c.args, o.code, o.stderr, c.says)
		}
	}
}

// wrongDevice computes something else than asked for.
type wrongDevice struct{ *reference.Device }

func (d wrongDevice) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	if u, ok := op.(device.Unary); ok && u.Func == device.Neg {
		op = device.Unary{Func: device.Exp}
	}
	return d.Device.Compile(op, in, out)
}

func TestSelftestTellsFailuresInFull(t *testing.T) {
	wrong := proof{name: "wrong", missing: func() error { return nil }, check: func(t conformance.T) {
		devicetest.Run(t, func(conformance.TB, device.Options) device.Device { return wrongDevice{reference.New()} }, devicetest.Caps{Types: []tensor.DType{tensor.F32}})
	}}
	var out, messages strings.Builder
	a := &app{env: environment{stdout: &out, stderr: &messages}}
	err := a.selftest(t.Context(), &selftestFlags{devices: []string{"wrong"}, run: "/values/elementwise/neg"}, []proof{wrong})
	if exit.Code(err) != exit.Device || !strings.Contains(out.String(), "wrong      values     FAILED") || !strings.Contains(out.String(), "wrong/values/elementwise/neg") ||
		!strings.Contains(out.String(), "element 0: got ") {
		t.Errorf("got %v and\n%s", err, out.String())
	}
	wrong.missing = func() error { return errors.New("gone") }
	if err := a.selftest(t.Context(), &selftestFlags{devices: []string{"all"}}, []proof{wrong}); exit.Code(err) != exit.Usage {
		t.Errorf("nothing there: got %v, want exit code 2", err)
	}
}

func TestAStoppedSelftestBeginsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	begun := 0
	p := proof{name: "two", missing: func() error { return nil }, check: func(t conformance.T) {
		for _, name := range []string{"first", "second"} {
			t.Run(name, func(conformance.T) { begun++; cancel() })
		}
	}}
	var out strings.Builder
	a := &app{env: environment{stdout: &out, stderr: io.Discard}}
	if err := a.selftest(ctx, &selftestFlags{devices: []string{"all"}}, []proof{p, p}); !errors.Is(err, context.Canceled) || begun != 1 {
		t.Errorf("got %v and %d checks begun, want the first alone", err, begun)
	}
	if strings.Contains(out.String(), "--time") {
		t.Errorf("no --time was given, got\n%s", out.String())
	}
}
