package program

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

const labScript = "../../../scripts/lab.sh"

// labCommand returns a command that runs scripts/lab.sh. Each rank is a shell that executes the script text.
func labCommand(t *testing.T, options, text string) *exec.Cmd {
	// The time limit makes a failure name the test that hangs.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, labScript, append(strings.Fields(options), "--", "bash", "-c", text)...)
	cmd.WaitDelay = time.Second
	return cmd
}

// needControlGroups skips the test if this machine has no writable control groups for CPUs. It returns the folder in
// which the script creates its groups.
func needControlGroups(t *testing.T) string {
	t.Helper()
	needtest.NotShort(t, "runs the lab's script, which takes a second")
	needtest.Programs(t, "tools", "taskset")
	out, err := labCommand(t, "--cpu 0.5", `echo "group=$HETERO_LAB_CGROUP"`).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, group, _ := strings.Cut(string(out), "group=")
	if group = strings.TrimSpace(group); group == "" {
		needtest.Missing(t, "cgroups", string(out))
	}
	return filepath.Dir(filepath.Dir(group))
}

// leftover returns the control groups that a script has not removed.
func leftover(t *testing.T, parent string, pid int) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(parent, fmt.Sprintf("hetero-lab-%d*", pid)))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestTheLabGivesEachRankItsQuotaAndEnvironment(t *testing.T) {
	t.Parallel()
	parent := needControlGroups(t)
	cmd := labCommand(t, "--cpu 0.4,0.05 --pin 0,0 --port 23456", `cd $HETERO_LAB_CGROUP
		quota=$(cat cpu.max 2>/dev/null || echo $(cat cpu.cfs_quota_us cpu.cfs_period_us))
		echo "rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, $MASTER_ADDR:$MASTER_PORT, $HETERO_LAB_CPUS CPUs, quota $quota, slowdown [${HETERO_LAB_SLOWDOWN-}], cores $(taskset -cp $$ | sed 's/.*: //')" >&2
		echo "stdout of $RANK"; grep -qx $$ cgroup.procs`)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if code := exitOf(t, cmd.Run()); code != 0 {
		t.Errorf("got exit code %d: a rank is not in its control group", code)
	}
	for _, want := range []string{
		"lab: 2 ranks on one machine: CPU quotas of 0.4/0.05 CPUs are real (control groups v",
		"rank 0 of 2, local 0 of 2, 127.0.0.1:23456, 0.4 CPUs, quota 4000 10000, slowdown [], cores 0\n",
		"[rank 1] rank 1 of 2, local 1 of 2, 127.0.0.1:23456, 0.05 CPUs, quota 1000 20000, slowdown [], cores 0\n",
	} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("got no %q in\n%s", want, stderr.String())
		}
	}
	if got := stdout.String(); got != "stdout of 0\n" {
		t.Errorf("got %q on standard output, want that of rank 0", got)
	}
	if left := leftover(t, parent, cmd.Process.Pid); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTheLabEndsWithItsRanks(t *testing.T) {
	parent := needControlGroups(t)
	for _, c := range []struct {
		name, text string
		code       int
		signal     syscall.Signal
	}{
		{"all are well", "exit 0", 0, 0},
		{"rank 0 fails", "exit $((RANK == 0 ? 3 : 7))", 3, 0},
		{"others fail", "exit $((RANK * 2))", 4, 0},
		{"a child is left", "sleep 1000 & exit 0", 0, 0},
		{"an interrupt is passed on", `trap 'exit $((130 + RANK))' INT; echo ready >&2; while :; do sleep 0.05; done`,
			130, syscall.SIGINT},
		{"a termination is passed on", `trap 'exit 75' TERM; echo ready >&2; while :; do sleep 0.05; done`, 75,
			syscall.SIGTERM},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := labCommand(t, "--cpu 0.5,0.5,0.5", c.text)
			out, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if c.signal != 0 {
				said := bufio.NewScanner(out)
				for ready := 0; ready < 3 && said.Scan(); { // waits until every rank has set its trap
					if strings.HasSuffix(said.Text(), "ready") {
						ready++
					}
				}
				cmd.Process.Signal(c.signal)
			}
			if code := exitOf(t, cmd.Wait()); code != c.code {
				t.Errorf("got exit code %d, want %d", code, c.code)
			}
			if left := leftover(t, parent, cmd.Process.Pid); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestTheLabRemovesWhatAKilledOneLeft(t *testing.T) {
	parent := needControlGroups(t)
	cmd := labCommand(t, "--cpu 0.5", "echo ready; sleep 1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if left := leftover(t, parent, cmd.Process.Pid); len(left) == 0 {
		t.Fatal("a killed script leaves nothing behind: this test tests nothing")
	}
	if out, err := labCommand(t, "--cpu 0.5", "true").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if left := leftover(t, parent, cmd.Process.Pid); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTheLabRefusesWhatItCannotDo(t *testing.T) {
	needtest.Programs(t, "tools", "taskset")
	for _, c := range []struct{ options, want string }{
		{"", "--cpu: want a quota for each rank"},
		{"--cpu 0.5,x", "--cpu: got 'x', want a number of CPUs"},
		{"--cpu 0.001", "--cpu: got '0.001'"},
		{"--cpu 1,1 --pin 0", "--pin: got 1 entries, want one for each of the 2 ranks"},
		{"--cpu 1 --pin 99999", "--pin: got '99999'"},
		{"--cpu 1 --link 1mbit;reboot", "--link: got '1mbit;reboot', want a rate"},
		{"--cpu 1 --port 0", "--port: got '0', want 1 to 65535"},
		{"--cpu 1 --quota 2", "unknown option: got '--quota'"},
	} {
		out, err := labCommand(t, c.options, "true").CombinedOutput()
		if exitOf(t, err) != 2 || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: got %v, %s", c.options, err, out)
		}
	}
}

// The simulated testbed must work on every machine. Scenarios and slowdowns change only times, so the parameters must
// be bit-equal to those of an undisturbed run.
func TestUnequalRanksTrainThroughWeatherToTheSameBits(t *testing.T) {
	p, dir := buildRanks(t), t.TempDir()
	storm := clitest.WriteConfig(t, "weather v1\nseed 7\nfrom 5 to 8 rank 1 speed 0.5 jitter 0.1\nfrom 7 to 9 rank 0 neighbour 1\nfrom 12 rank 1 link 10 mbit\nrank 9 speed 0.5\n")
	set := []string{"device.kind=cpu", "train.steps=16", "train.precision=f32", "balance.fixed_shares=[5, 3]"}
	var files [][]byte
	for _, with := range []bool{false, true} {
		output := filepath.Join(dir, fmt.Sprint(with))
		cmd := p.command(output, append(set, "parallel.ranks=2")...)
		if with {
			run := p.command(output, append(set, "lab.weather="+storm)...)
			cmd = exec.Command(labScript, append([]string{"--simulate", "--cpu", "0.8,0.4", "--"}, run.Args...)...)
		}
		got := finish(t, cmd, 0)
		if got.code == exit.Usage && strings.Contains(got.stderr, "libhetero_cpu.so") {
			needtest.Missing(t, "cpu", "no CPU device was built")
		}
		got.check(t, exit.Done, "")
		if files = append(files,
			clitest.ReadFile(t, filepath.Join(output, "run", "checkpoints", checkpoint.StepName(16),
				"model.safetensors"))); !with {
			continue
		}
		for _, want := range []string{
			"SIMULATED slowdown of the ranks' devices: x1.25/x2.5",
			"simulated slowdown x1.25", "[rank 1] ", "simulated slowdown x2.5", // one line for each rank
			`"speed 0.5 with jitter (simulated)"`, `"1 neighbour (real)"`, `"link 10 Mbit/s (no effect)"`,
			"scenario: rank 1: link has no effect on this machine",
			"the scenario has lines for ranks that do not exist in this run",
		} {
			if !strings.Contains(got.stderr, want) {
				t.Errorf("got no %q in\n%s", want, got.stderr)
			}
		}
		var result struct{ Notes []string }
		if err := json.Unmarshal(clitest.ReadFile(t, filepath.Join(output, "run", "results", "result.json")),
			&result); err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(result.Notes, "\n"); !strings.Contains(notes,
			"SIMULATED slowdown of the ranks' devices: x1.25/x2.5") ||
			!strings.Contains(notes, "speeds: simulated/simulated") {
			t.Errorf("result.json does not say what its figures are: %q", notes)
		}
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("weather changed the result")
	}
	noProcessOf(t, p)
}

func TestWeatherInTheLabIsReal(t *testing.T) {
	parent := needControlGroups(t)
	p, dir := buildRanks(t), t.TempDir()
	storm := clitest.WriteConfig(t, "weather v1\nfrom 2 to 3 rank 1 speed 0.5\n")
	run := p.command(dir, "train.steps=5", "lab.weather="+storm)
	cmd := exec.Command(labScript, append([]string{"--cpu", "0.9,0.4", "--"}, run.Args...)...)
	got := finish(t, cmd, 0)
	got.check(t, exit.Done, "")
	for _, want := range []string{"real: CPU quota, 0.9 CPUs at speed 1", "real: CPU quota, 0.4 CPUs at speed 1",
		`"speed 0.5 (real)"`, `"as usual"`} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("got no %q in\n%s", want, got.stderr)
		}
	}
	if left := leftover(t, parent, cmd.Process.Pid); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// If a rank is killed, the processes that simulate its noisy neighbour must end.
func TestAKilledRankLeavesNoNeighbour(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	cmd := p.command(dir, "train.steps=100000000", "train.epochs=0",
		"lab.weather="+clitest.WriteConfig(t, "weather v1\nall neighbour 2\n"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	for limit := time.Now().Add(patience); len(processesOf(t, p)) < 3; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("got processes %v, want the run and two neighbours", processesOf(t, p))
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	noProcessOf(t, p)
}

// processesOf returns the processes that run the program.
func processesOf(t *testing.T, p program) (pids []string) {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range list {
		if exe, err := os.Readlink(filepath.Join(dir, "exe")); err == nil && exe == p.path {
			pids = append(pids, filepath.Base(dir))
		}
	}
	return pids
}

// noProcessOf waits until no process runs the program.
func noProcessOf(t *testing.T, p program) {
	t.Helper()
	for limit := time.Now().Add(patience); len(processesOf(t, p)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("processes %v are left", processesOf(t, p))
		}
	}
}

func TestWeatherThatCannotBeIsRefused(t *testing.T) {
	p, faulty := buildProgram(t), clitest.WriteConfig(t, "weather v1\nall speed 2\n")
	for _, c := range []struct {
		name, set, environ, want string
	}{
		{"no file", "lab.weather=/nowhere/at/all", "", "lab.weather: open /nowhere/at/all"},
		{"a faulty file", "lab.weather=" + faulty, "",
			faulty + `:2: speed: got "2", want a number above 0 and at most 1`},
		{"a faulty environment", "train.steps=1", "HETERO_LAB_SLOWDOWN=fast",
			`environment variable HETERO_LAB_SLOWDOWN: got "fast", want a factor from 1 to 1000`},
		{"a device that cannot be slowed down", "device.kind=reference", "HETERO_LAB_SLOWDOWN=2",
			"environment variable HETERO_LAB_SLOWDOWN: got 2, but device reference"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := p.command(filepath.Join(dir, "out"), c.set)
			cmd.Env = append(os.Environ(), c.environ)
			finish(t, cmd, 0).check(t, exit.Usage, c.want)
			if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
				t.Error("a run's folder was made")
			}
		})
	}
}
