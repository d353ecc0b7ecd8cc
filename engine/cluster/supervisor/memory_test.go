//go:build unix

package supervisor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

func TestReadsTheCountsOfKilledProcesses(t *testing.T) {
	const mountsV2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	const mountsV1 = "31 24 0:27 /docker/ab /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n32 24 0:28 /docker/ab /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
	tests := []struct {
		name  string
		files map[string]string
		want  memoryKills
	}{
		{"nothing to read", nil, memoryKills{-1, -1}},
		{"version 2", map[string]string{
			"proc/self/cgroup": "0::/user/run\n", "proc/self/mountinfo": mountsV2,
			"proc/vmstat":                          "pgfault 5\noom_kill 7\n",
			"sys/fs/cgroup/user/run/memory.events": "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n",
		}, memoryKills{2, 7}},
		{"version 1 in a container", map[string]string{
			"proc/self/cgroup": "5:cpu:/docker/ab\n4:memory:/docker/ab/job\n", "proc/self/mountinfo": mountsV1,
			"sys/fs/cgroup/memory/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
		}, memoryKills{4, -1}},
		{"version 1 next to version 2 without the controller", map[string]string{
			"proc/self/cgroup": "4:memory:/docker/ab\n0::/\n", "proc/self/mountinfo": mountsV1 + mountsV2,
			"sys/fs/cgroup/memory/memory.oom_control": "oom_kill 1\n",
		}, memoryKills{1, -1}},
		{"garbage", map[string]string{"proc/self/cgroup": "x\n::\n4:memory", "proc/self/mountinfo": "\n - \n1 2 3",
			"proc/vmstat": "oom_kill many\n"}, memoryKills{-1, -1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range test.files {
				path := filepath.Join(root, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
					os.WriteFile(path, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			if got := readMemoryKills(root); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestSaysWhetherMemoryWasWanting(t *testing.T) {
	tests := []struct {
		before, after memoryKills
		want          string
	}{
		{memoryKills{1, 5}, memoryKills{2, 6}, "out of memory (the control group's counter oom_kill rose from 1 to 2)"},
		{memoryKills{1, 5}, memoryKills{1, 6},
			"perhaps out of memory (the machine's counter oom_kill rose from 5 to 6)"},
		{memoryKills{-1, 5}, memoryKills{-1, 7},
			"perhaps out of memory (the machine's counter oom_kill rose from 5 to 7)"},
		{memoryKills{1, 5}, memoryKills{1, 5}, ""},
		{memoryKills{-1, -1}, memoryKills{-1, -1},
			"cause unknown: no counter oom_kill is readable; the kernel log may have the reason"},
	}
	for _, test := range tests {
		if got := test.before.reason(test.after); got != test.want {
			t.Errorf("%+v to %+v: got %q, want %q", test.before, test.after, got, test.want)
		}
	}
}

// memoryGroup makes a control group with a memory limit, or skips the test.
func memoryGroup(t *testing.T, limit int) (procs string) {
	t.Helper()
	name := fmt.Sprintf("hetero-train-test-%d", os.Getpid())
	for _, kind := range []struct {
		folder, limit string
	}{{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}} {
		folder := filepath.Join(kind.folder, name)
		if os.Mkdir(folder, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			for deadline := time.Now().Add(patience); os.Remove(folder) != nil; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) { // the processes of the group should have ended
					t.Errorf("%s is left", folder)
					return
				}
			}
		})
		file, err := os.OpenFile(filepath.Join(folder, kind.limit), os.O_WRONLY, 0)
		if err != nil {
			continue
		}
		_, err = fmt.Fprint(file, limit)
		if errors.Join(err, file.Close()) == nil {
			return filepath.Join(folder, "cgroup.procs")
		}
	}
	needtest.Missing(t, "cgroups", "no control group with a limit of memory can be made")
	return ""
}

func TestKillForWantOfMemoryIsSaid(t *testing.T) {
	procs := memoryGroup(t, 256<<20)
	// Until the memory of rank 1 is free, the kernel can kill a second process. It does not kill the supervisor
	// (TestRanksHaveAHigherOOMAdjustment), but it can kill another rank. The supervisor can see the end of that rank
	// first.
	const reason = ` \(process .* was killed by SIGKILL: out of memory \(the control group's counter oom_kill rose from `
	const figures = `: memory\.\w+ of /\S+ is 256\.0 MiB, and its processes used up to 25\d\.\d MiB; planned-`
	want := regexp.MustCompile(`rank 1` + reason + `\d+ to \d+\)` + figures + `1|rank ([02])` + reason + `0 to [23]\)` +
		figures + `[02]`)
	// The shell moves itself, and therefore the supervisor and the ranks, into the group.
	command := exec.Command("/bin/sh", "-c", `echo $$ > "$0" && exec "$1"`, procs, os.Args[0])
	command.Env, command.WaitDelay = append(os.Environ(), superviseVariable+"=account planned-0,wait;account planned-1,memory;account planned-2,wait"), patience
	out, err := command.CombinedOutput()
	if err != nil || !want.Match(out) {
		t.Errorf("%v, got %s\nwant %s", err, out, want)
	}
}
