package program

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/collective/shm"
	"github.com/hetero-train/hetero-train/engine/nativelib"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// asSomebody returns a command that executes a line of shell, and then the program with two ranks. Its user has no
// other processes. This user cannot read the checkout, so the command uses copies of its files. runs is the folder of
// the run.
func asSomebody(t *testing.T, shell string) (cmd *exec.Cmd, runs string) {
	t.Helper()
	needtest.Root(t, "to become another user: RLIMIT_NPROC does not bind root")
	bash := needtest.Program(t, "bash", "bash") // bash's ulimit can limit the number of processes
	p := buildRanks(t)
	dir, err := os.MkdirTemp("", "hetero-train-threads-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	const somebody = 64321
	built, file := filepath.Join(dir, "hetero-train"), filepath.Join(dir, "run.toml")
	runs = filepath.Join(dir, "runs")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(built, clitest.ReadFile(t, p.path), 0o755),
		os.WriteFile(file, []byte(smallRun), 0o644), os.Mkdir(runs, 0o755),
		os.Chown(runs, somebody, somebody)); err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(nativetest.Need(t, "shm", shm.LibraryName), shm.LibraryName)
	if err := os.WriteFile(filepath.Join(dir, shm.LibraryName), clitest.ReadFile(t, library), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv(nativelib.DirVariable, dir)
	run := program{path: built, config: file}.command(runs, "train.steps=20", "parallel.ranks=2")
	cmd = exec.Command(bash, append([]string{"-c", shell + ` && exec "$0" "$@"`, run.Path}, run.Args[1:]...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_CACHE_HOME="+runs, "HOME="+runs)
	runsAs(cmd, somebody)
	return cmd, runs
}

// If the limit of processes is too low, Go's runtime ends the process without a message of this program. The program
// must therefore check the limit before it starts ranks.
func TestTooFewProcessesForAUserAreRefused(t *testing.T) {
	cmd, runs := asSomebody(t, "ulimit -u 20")
	e := finish(t, cmd, 0)
	e.check(t, exit.Usage, "the limit of processes is too low: a run of 2 ranks on this machine needs at least ")
	e.check(t, exit.Usage, "RLIMIT_NPROC of user 64321 allows 20 threads, of which ")
	e.check(t, exit.Usage, "raise the limit (ulimit -u) to ")
	if left, err := os.ReadDir(runs); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v in the folder of runs, want nothing", left, err)
	}
	cmd, _ = asSomebody(t, "ulimit -u 2000")
	finish(t, cmd, 0).check(t, exit.Done, "")
}

func TestTooFewProcessesForAControlGroupAreRefused(t *testing.T) {
	p := buildRanks(t)
	group := ""
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		folder := filepath.Join(root, fmt.Sprintf("hetero-train-threads-%d", os.Getpid()))
		if os.Mkdir(folder, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			for begun := time.Now(); os.Remove(folder) != nil; time.Sleep(20 * time.Millisecond) {
				if time.Since(begun) > patience { // by then, the previous process of the user should have ended
					t.Errorf("%s is left", folder)
					return
				}
			}
		})
		if os.WriteFile(filepath.Join(folder, "pids.max"), []byte("18"), 0o644) == nil {
			group = folder
			break
		}
	}
	if group == "" {
		needtest.Missing(t, "cgroups", "no control group with a limit of processes can be made")
	}
	run := p.command(t.TempDir(), "train.steps=20", "parallel.ranks=2")
	cmd := exec.Command("sh", append([]string{"-c", `echo $$ > ` + group + `/cgroup.procs && exec "$0" "$@"`, run.Path},
		run.Args[1:]...)...)
	e := finish(t, cmd, 0)
	e.check(t, exit.Usage, "the limit of processes is too low: a run of 2 ranks on this machine needs at least ")
	e.check(t, exit.Usage, "pids.max of the control group "+group+" allows 18 threads, of which ")
	e.check(t, exit.Usage, "raise the limit (pids.max) to ")
}
