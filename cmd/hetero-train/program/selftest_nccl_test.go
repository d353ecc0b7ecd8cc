package program

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/selftest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// onSelftest runs the NCCL suite of the program on one simulated GPU with a fake NCCL.
func onSelftest(t *testing.T, fault string, flags []string, env ...string) (code int, out string) {
	t.Helper()
	cmd := exec.Command(buildRanks(t).path, append([]string{"selftest", "--device", "nccl", "--short"}, flags...)...)
	cmd = onNCCL(t, 1, cmd, fault)
	cmd.Env = append(cmd.Env, env...)
	text, err := cmd.CombinedOutput()
	return exitOf(t, err), string(text)
}

// Ranks share a GPU. Some simulated versions of NCCL support this, and others do not. The suite must detect simulated
// faults.
func TestSelftestOfNCCL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, fault string
		flags       []string
		code        int
		says        []string
	}{
		{"all but what takes seconds", "", nil, exit.Done, []string{"nccl       on NCCL 2.28.9 (",
			"ranks are processes; GPUs: 1, shared by the ranks", "nccl       values     ok", "nccl       order      ok",
			"nccl       faults     ok", ", 0 failed"}},
		{"a version that puts two ranks on one GPU", "version=23003", []string{"--run", "/values/broadcast"}, exit.Done,
			[]string{"nccl       on NCCL 2.30.3 (", "3 passed"}},
		{"a bit that is wrong", "wrong:1@2", []string{"--run", "/values/(broadcast|all_reduce of every)"},
			exit.Communication, []string{"nccl       values     FAILED", "2 ranks", "selftest: failed: nccl"}},
		// The check tries longer and longer time-outs, up to two minutes. The first one normally ends within the limit.
		// On a very busy machine, the limit must be longer.
		{"an operation that hangs", "hang:1@1", []string{"--run", "/faults/an operation that a rank", "--limit", "8s"},
			exit.Communication, []string{"nccl       faults     FAILED",
				"with a time-out of 1.2s: the operation that all ranks enter: ", "the check did not end within 8s"}},
		{"one rank whose NCCL refuses", "refuse:1", []string{"--run", "/values/broadcast"}, exit.Communication,
			[]string{"nccl       values     FAILED", "ncclCommInitRankConfig: "}},
		{"one that is too old", "version=21703", nil, exit.Communication,
			[]string{"nccl       missing: nccl is unavailable: ", "is NCCL 2.17.3, want 2.18.0 or later"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out := onSelftest(t, c.fault, c.flags, "HETERO_REQUIRE=nccl")
			if at := slices.Index(c.flags, "8s"); at >= 0 && !strings.Contains(out, "with a time-out of 1.2s: ") {
				c.flags[at] = "60s"
				code, out = onSelftest(t, c.fault, c.flags, "HETERO_REQUIRE=nccl")
				out = strings.ReplaceAll(out, "within 1m0s", "within 8s")
			}
			if code != c.code {
				t.Errorf("got exit code %d, want %d; it said\n%s", code, c.code, out)
			}
			for _, want := range c.says {
				if !strings.Contains(out, want) {
					t.Errorf("want %q in\n%s", want, out)
				}
			}
		})
	}
}

// The command must print which part is missing. It must fail if HETERO_REQUIRE contains this part.
func TestSelftestWithoutNCCL(t *testing.T) {
	p := buildRanks(t)
	for _, c := range []struct {
		name string
		gpus int
		env  string
		says string
	}{
		{"no GPU", 0, "", "nccl       missing: there is no GPU to use: cuda: "},
		{"no library", 1, "", "nccl       missing: nccl is unavailable: no libhetero_nccl.so"},
		{"a setting that is refused", 1, "NCCL_NET_PLUGIN=x",
			"nccl       missing: check the settings of NCCL: NCCL_NET_PLUGIN: this setting makes NCCL load code"},
	} {
		for _, required := range []string{"", "nccl"} {
			want := exit.Done
			if required != "" {
				want = exit.Communication
			}
			cmd := onGPU(t, c.gpus, exec.Command(p.path, "selftest", "--device", "local,nccl", "--run",
				"/order/events"), c.env, "HETERO_REQUIRE="+required)
			out, err := cmd.CombinedOutput()
			if code := exitOf(t, err); code != want || !strings.Contains(string(out), c.says) {
				t.Errorf("%s, HETERO_REQUIRE=%s: got exit code %d, want %d and %q; it said\n%s", c.name, required, code,
					want, c.says, out)
			}
		}
	}
}

// Checks that have not started before the time limit must count as failed. The command must still write the report.
func TestSelftestIsOverInTime(t *testing.T) {
	o := execute([]string{"selftest", "--device", "local,reference", "--time", "1ms", "--json", "-"})
	var got selftest.Report
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || o.code != exit.Device || len(got.Late) != 2 ||
		!strings.Contains(o.stderr, "time limit of 1ms reached") ||
		!strings.Contains(o.stderr, "selftest: failed: reference, local") {
		t.Errorf("got exit code %d, %v, %v late and\n%s", o.code, err, got.Late, o.stderr)
	}
}
