package program

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/plan"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/nativelib"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// buildWithoutCgo builds the program without cgo, like the builds for macOS and Windows.
func buildWithoutCgo(t *testing.T) program {
	t.Helper()
	needtest.NotShort(t, "compiles the program without cgo")
	path := filepath.Join(t.TempDir(), "hetero-train")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program{path: path, config: clitest.WriteConfig(t, smallRun)}
}

const withoutCgo = "this program was built without cgo and cannot load native libraries: install a C++ compiler, unset CGO_ENABLED, and run make"

// Without cgo, the program must train on the reference device, read runs, plan and simulate. Other devices and runs of
// several ranks need native libraries. The program must refuse them, and the error must state that it was built without
// cgo.
// The test runs only in a test binary without cgo, because the packages of the program are then already compiled.
func TestAProgramWithoutCgoSaysWhatItCannotDo(t *testing.T) {
	if err := nativelib.Loadable(); err == nil || err.Error() != withoutCgo {
		t.Skip("compiles all packages without cgo; CGO_ENABLED=0 go test runs it")
	}
	t.Parallel()
	p, dir := buildWithoutCgo(t), t.TempDir()
	run := func(args ...string) ended {
		t.Helper()
		return finish(t, exec.Command(p.path, args...), 0)
	}

	if help := run("--help"); help.code != exit.Done || !strings.Contains(help.stdout, withoutCgo) ||
		!strings.Contains(help.stdout, "--device reference") {
		t.Errorf("--help: got %+v, want the limits of this build", help)
	}
	var version struct {
		Parts []struct {
			Name, Reason string
			Available    bool
		}
	}
	if err := json.Unmarshal([]byte(run("version", "--json").stdout), &version); err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{"jpeg": true, "webp": true, "reference device": true, "null device": true}
	for _, part := range version.Parts {
		if part.Available != there[part.Name] || !part.Available &&
			!strings.Contains(part.Reason, "built without cgo") {
			t.Errorf("version: got %+v, want available %v, and why not", part, there[part.Name])
		}
	}
	if text := run("version").stdout; strings.Count(text, withoutCgo) != 1 ||
		strings.Contains(text, "folders of native libraries") {
		t.Errorf("version: got\n%s\nwant the reason once, and no folders", text)
	}
	var hardware devices.Report
	if err := json.Unmarshal([]byte(run("devices", "--json").stdout), &hardware); err != nil {
		t.Fatal(err)
	}
	for _, d := range hardware.Devices {
		if has := d.Kind == "reference" || d.Kind == "null"; d.Available != has ||
			!has && !strings.Contains(d.Reason, withoutCgo) || d.Auto {
			t.Errorf("devices: got %+v, want available %v, and why not", d, has)
		}
	}

	// The program trains.
	auto := run("-c", p.config, "--set", "device.kind=auto", "--set", "experiment.output_dir="+dir)
	auto.check(t, exit.Usage, "cpu: "+withoutCgo+`; device.kind = "reference" works on every machine`)
	ranks := p.command(dir, "parallel.ranks=2")
	finish(t, ranks, 0).check(t, exit.Usage, "several ranks need native libraries to exchange gradients, and "+
		withoutCgo)
	nccl := run("nccl", "check")
	if nccl.code == exit.Done || nccl.code == exit.Unexpected {
		t.Errorf("nccl check: got %+v, want a documented exit code", nccl)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("refused runs left %v, %v", left, err)
	}
	finish(t, p.command(dir, "train.steps=20", "train.eval_interval=1"), 0).check(t, exit.Done, "")
	trained := filepath.Join(dir, "run")
	if got := resultOf(t, trained); got.Steps != 20 {
		t.Errorf("got %+v, want 20 steps", got)
	}

	// The program reads the run.
	curves := fileOfCurves(t)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"status", "--input-dir", dir}, "run"},
		{[]string{"analyze", trained}, "20 steps"},
		{[]string{"eval", trained, "--device", "reference"}, "top-1"},
		{[]string{"checkpoint", "inspect", filepath.Join(trained, "checkpoints", "latest")}, "step"},
		{[]string{"checkpoint", "verify", filepath.Join(trained, "checkpoints", "latest")}, ""},
		{[]string{"config", "show", "-c", p.config}, "reference"},
		{[]string{"balance", "simulate", "--curves", curves, "--global-batch", "200", "--policy", "none"}, "shares"},
		{[]string{"schedule", "simulate", "--policy", "gang", "--jobs", "10"}, "gang"},
	} {
		if e := run(c.args...); e.code != exit.Done || !strings.Contains(e.stdout, c.says) {
			t.Errorf("%q: got exit code %d, want 0 and %q in\n%s\n%s", c.args, e.code, c.says, e.stdout, e.stderr)
		}
	}
	cmd, address, _ := startDashboard(t, p, "--input-dir", dir)
	if code, text := clitest.Get(t, address); code != 200 || !strings.Contains(text, "hetero-train") {
		t.Errorf("dashboard: got %d and %.200s", code, text)
	}
	cmd.Process.Signal(syscall.SIGINT)

	// The program plans. The number of parameters does not depend on the device.
	var planned plan.Report
	e := run("plan", "-c", p.config, "--set", "device.kind=auto", "--memory", "1GiB", "--json")
	e.check(t, exit.Done, "the plan is for the reference device")
	if err := json.Unmarshal([]byte(e.stdout), &planned); err != nil || planned.Parameters < 100 ||
		planned.LargestFit < 8 || planned.Device != "reference:0" {
		t.Errorf("plan: got %v, %+v", err, planned)
	}
	run("plan", "-c", p.config, "--device", "cpu").check(t, exit.Usage, "cpu: "+withoutCgo)
}
