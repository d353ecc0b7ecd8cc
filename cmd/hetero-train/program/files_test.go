//go:build linux

package program

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// openFiles returns the number of open files of a process, or 0 if it has ended. Before a process executes its program,
// it has the open files of its parent.
func openFiles(pid string) int {
	all, err := os.ReadDir(filepath.Join("/proc", pid, "fd"))
	if err != nil {
		return 0
	}
	return len(all)
}

// mostFiles runs a command and returns the largest number of open files of one of its processes.
func mostFiles(t *testing.T, cmd *exec.Cmd) (most int, e ended) {
	t.Helper()
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	pid := strconv.Itoa(cmd.Process.Pid)
	for {
		select {
		case err := <-over:
			return most, ended{exitOf(t, err), out.String(), messages.String()}
		case <-time.After(5 * time.Millisecond): // listing the threads of a process costs CPU time
		}
		most = max(most, openFiles(pid))
		tasks, err := filepath.Glob(filepath.Join("/proc", pid, "task", "*", "children"))
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			children, err := os.ReadFile(task)
			if err != nil {
				continue // the thread has ended
			}
			for _, child := range strings.Fields(string(children)) {
				most = max(most, openFiles(child))
			}
		}
	}
}

// If the limit of open files is too low, the program must end before ranks start. The error states the limit that the
// run needs. This limit must be sufficient, and at most 1.3 times the number of files that the processes open.
func TestTheNeedOfOpenFilesIsKnown(t *testing.T) {
	t.Parallel()
	p := buildRanks(t)
	limited := func(limit string, more ...string) *exec.Cmd {
		run := p.command(t.TempDir(), append([]string{"train.steps=20", "parallel.ranks=6"}, more...)...)
		return exec.Command("sh", append([]string{"-c", `ulimit ` + limit + ` && exec "$0" "$@"`, run.Path},
			run.Args[1:]...)...)
	}
	for name, settings := range map[string][]string{
		"shared memory": nil,
		"TCP":           {"parallel.shared_memory=off"},
		"encrypted":     {"parallel.shared_memory=off", "parallel.encrypt=true"},
	} {
		t.Run(name, func(t *testing.T) {
			refused := finish(t, limited("-n 40", settings...), 0)
			refused.check(t, exit.Usage, "the limit of open files is too low: got 40, want at least ")
			found := regexp.MustCompile(`want at least (\d+) .*LimitNOFILE=(\d+)`).FindStringSubmatch(refused.stderr)
			if found == nil || found[1] != found[2] {
				t.Fatalf("got %q, want the need and how to raise the limit", refused.stderr)
			}
			need, err := strconv.Atoi(found[1])
			if err != nil {
				t.Fatal(err)
			}
			finish(t, limited(fmt.Sprintf("-n %d", need-1), settings...), 0).check(t, exit.Usage,
				fmt.Sprintf("got %d, want at least %d", need-1, need))
			most := 0
			// On a busy machine, mostFiles may miss files of a short run, so the next run is longer.
			for steps := 20; steps <= 2000; steps *= 10 {
				now, e := mostFiles(t, limited(fmt.Sprintf("-n %d", need), append(slices.Clone(settings),
					fmt.Sprint("train.steps=", steps))...))
				e.check(t, exit.Done, "")
				if most = max(most, now); float64(need) <= 1.3*float64(most) {
					break
				}
			}
			if most == 0 || float64(need) > 1.3*float64(most) {
				t.Errorf("the program demands %d files, and a process had at most %d", need, most)
			}
			t.Logf("demanded %d, opened %d", need, most)
		})
	}
	finish(t, limited("-S -n 40"), 0).check(t, exit.Done, "") // sets only the soft limit, which the program raises
}
