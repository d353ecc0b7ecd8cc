package program

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/selftest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
)

func TestSelftestChecksADevice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "result.json")
	o := execute([]string{"selftest", "--device", "null,reference", "--run", "/(streams|values)/(copies|pool)",
		"--json", file})
	if o.code != exit.Done || !strings.Contains(o.stdout, "reference  values     ok") ||
		!strings.Contains(o.stdout, "null       streams    ok") ||
		!strings.Contains(o.stdout, "checks passed, 0 failed, 0 skipped") {
		t.Errorf("got exit code %d and\n%s%s", o.code, o.stdout, o.stderr)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got selftest.Report
	if err := json.Unmarshal(text, &got); err != nil || got.Passed < 50 || got.Failed != 0 || len(got.Suites) != 2 ||
		got.Program != version.Text() {
		t.Errorf("got %v, %d passed, %d failed, %d suites; want those that were shown", err, got.Passed, got.Failed,
			len(got.Suites))
	}
	if o := execute([]string{"selftest", "--device", "local", "--run", "/order/(barrier|events)", "--json",
		"-"}); o.code != exit.Done || json.Unmarshal([]byte(o.stdout), &got) != nil || got.Passed < 1 {
		t.Errorf("communicator: got exit code %d, %s%s", o.code, o.stdout, o.stderr)
	}
}

func TestSelftestNeedsWhatIsRequired(t *testing.T) {
	t.Setenv("HETERO_LIB_DIR", t.TempDir()) // the folder is empty, so there is no CPU device
	args := []string{"selftest", "--device", "cpu", "--device", "local", "--run", "/order"}
	if o := execute(args); o.code != exit.Done ||
		!strings.Contains(o.stdout, "cpu        missing: device unavailable") {
		t.Errorf("got exit code %d and\n%s%s", o.code, o.stdout, o.stderr)
	}
	if o := execute(args, "HETERO_REQUIRE=cpu"); o.code != exit.Device ||
		!strings.Contains(o.stderr, "selftest: failed: cpu") {
		t.Errorf("HETERO_REQUIRE=cpu: got exit code %d and\n%s", o.code, o.stderr)
	}
	if o := execute([]string{"selftest", "--device", "local", "--run", "/order"},
		"HETERO_REQUIRE=shm,local"); o.code != exit.Communication ||
		!strings.Contains(o.stderr, "selftest: failed: shm") {
		t.Errorf("HETERO_REQUIRE=shm,local: got exit code %d and\n%s", o.code, o.stderr)
	}
	for _, names := range []string{"gpu", "local,cppu"} {
		o := execute([]string{"selftest", "--device", "local", "--run", "/order"}, "HETERO_REQUIRE="+names)
		if o.code != exit.Usage || !strings.Contains(o.stderr, "HETERO_REQUIRE: unknown part") {
			t.Errorf("HETERO_REQUIRE=%s: got exit code %d and\n%s", names, o.code, o.stderr)
		}
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--device", "gpu"},
			`--device: got "gpu", want auto, all, cuda, cpu, reference, null, local, shm, gloo, nccl`},
		{[]string{"--run", "("}, "--run"},
		{[]string{"--limit", "-1s"}, "--limit: got -1s, want more than 0s"},
		{[]string{"--device", "null", "--run", "nothing"}, "no check ran"},
		{[]string{"--set", "train.epochs=3"}, "cannot be used with this command"},
	} {
		if o := execute(append([]string{"selftest"}, c.args...)); o.code != exit.Usage ||
			!strings.Contains(o.stderr, c.says) {
			t.Errorf("%q: got exit code %d and %q, want 2 and %q", c.args, o.code, o.stderr, c.says)
		}
	}
}
