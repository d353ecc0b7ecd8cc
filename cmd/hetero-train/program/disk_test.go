package program

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// patience is the maximum time that a test waits for an event.
const patience = 2 * time.Minute

// watched is a running program with its output so far.
type watched struct {
	cmd *exec.Cmd

	mu    sync.Mutex
	grown *sync.Cond
	text  bytes.Buffer
	ended bool
	close func() error // ends the output
}

// watch starts a command, and collects its output.
func watch(t *testing.T, cmd *exec.Cmd) *watched {
	t.Helper()
	reader, writer := io.Pipe()
	w := &watched{cmd: cmd, close: writer.Close}
	w.grown = sync.NewCond(&w.mu)
	cmd.Stdout, cmd.Stderr = writer, writer
	go func() {
		block := make([]byte, 1<<16)
		for {
			n, err := reader.Read(block)
			w.mu.Lock()
			w.text.Write(block[:n])
			w.ended = err != nil
			w.grown.Broadcast()
			w.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() // has an effect only if the test failed before the program ended
		cmd.Wait()
		writer.Close()
	})
	return w
}

// await waits until the program has written all texts.
func (w *watched) await(t *testing.T, texts ...string) {
	t.Helper()
	late := time.AfterFunc(patience, func() {
		w.mu.Lock()
		w.ended = true
		w.grown.Broadcast()
		w.mu.Unlock()
	})
	defer late.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range texts {
		for !bytes.Contains(w.text.Bytes(), []byte(text)) {
			if w.ended {
				t.Fatalf("waited in vain for %q in\n%s", text, tail(w.text.String()))
			}
			w.grown.Wait()
		}
	}
}

// tail returns the end of a long text.
func tail(text string) string { return text[max(len(text)-4000, 0):] }

// end waits for the end of the program, and checks its exit code and its output.
func (w *watched) end(t *testing.T, code int, says string) {
	t.Helper()
	got := exitOf(t, w.cmd.Wait())
	w.close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.ended { // the last output may be read after the program ends
		w.grown.Wait()
	}
	if got != code || !strings.Contains(w.text.String(), says) {
		t.Errorf("got exit code %d, want %d and %q in\n%s", got, code, says, tail(w.text.String()))
	}
}

// newestStep returns the step of the newest checkpoint of the run in dir. The checkpoint must be valid.
func newestStep(t *testing.T, dir string) int64 {
	t.Helper()
	c, skipped, err := checkpoint.Latest(filepath.Join(dir, "run", "checkpoints"))
	if err != nil || len(skipped) > 0 {
		t.Fatalf("the newest checkpoint: %v, skipped %v", err, skipped)
	}
	defer c.Close()
	return c.State.Step
}

// awaitStep waits until the run in dir has a checkpoint of a step later than step.
func awaitStep(t *testing.T, dir string, step int64) {
	t.Helper()
	for begun := time.Now(); newestStep(t, dir) <= step; time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("no checkpoint after step %d", step)
		}
	}
}

// checkRecords requires one valid record for each step up to the newest checkpoint.
func checkRecords(t *testing.T, dir string) {
	t.Helper()
	newest := newestStep(t, dir)
	records, damaged, err := runtime.ReadMetrics(filepath.Join(dir, "run", "logs", runtime.FileName(0)))
	if err != nil || damaged != 0 || int64(len(records)) != newest {
		t.Fatalf("records: %v, %d damaged, got %d, want one for each of %d steps", err, damaged, len(records), newest)
	}
	for i, r := range records {
		if r.Iteration != int64(i+1) {
			t.Fatalf("record %d is of step %d", i+1, r.Iteration)
		}
	}
}

// goesOn ends a fault. Afterwards, the run must save, it must be possible to stop it, and it must have all records.
func (w *watched) goesOn(t *testing.T, dir string, endFault func()) {
	t.Helper()
	before := newestStep(t, dir)
	endFault()
	awaitStep(t, dir, before)
	w.cmd.Process.Signal(syscall.SIGTERM)
	w.end(t, exit.Terminated, "saved")
	checkRecords(t, dir)
}

// The disk of a run is temporarily full during training (row D1).
func TestAFullDiskInMidRunCostsNoStep(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	if !inOwnMounts(t) {
		return
	}
	dir := smallDisk(t, "size=8m")
	w := watch(t, p.command(dir, "train.steps=1000000", "train.log_interval=1"))
	w.await(t, "step 20/")
	free := fill(t, dir)
	w.await(t, "no space left on device; earlier checkpoints are unchanged",
		"metrics cannot be written and are kept in memory",
		"TensorBoard events cannot be written and are kept in memory", "the log file cannot be written")
	w.goesOn(t, dir, func() {
		free()
		w.await(t, "metrics can be written again", "TensorBoard events can be written again",
			"the log file can be written again")
	})
}

// If the disk is full at the final save, earlier checkpoints must remain. After space has been freed, the same command
// must complete the run. Its result must be bit-equal to that of a run without the fault (row D1).
func TestAFullDiskAtTheEndIsExitCode7(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	if !inOwnMounts(t) {
		return
	}
	const steps = "train.steps=400"
	dir, whole := smallDisk(t, "size=8m"), t.TempDir()
	finish(t, p.command(whole, steps), 0).check(t, exit.Done, "")
	w := watch(t, p.command(dir, steps, "train.log_interval=1"))
	w.await(t, "step 20/")
	w.cmd.Process.Signal(freeze) // stops the run, so that it saves no checkpoint while the disk fills
	free := fill(t, dir)
	w.cmd.Process.Signal(thaw)
	w.end(t, exit.IO, "the final save failed")
	continues := fmt.Sprintf("continues from step %d with:", newestStep(t, dir))
	w.await(t, "no space left on device", "the newest checkpoint is "+dir, continues, "free space on that disk")
	free()
	finish(t, p.command(dir, steps), 0).check(t, exit.Done, "")
	checkRecords(t, dir)
	at := filepath.Join("run", "checkpoints", "step-00000400", "model.safetensors")
	if !bytes.Equal(clitest.ReadFile(t, filepath.Join(dir, at)), clitest.ReadFile(t, filepath.Join(whole, at))) {
		t.Error("the parameters differ from those of a run that was not disturbed")
	}

	free = fill(t, dir)
	defer free()
	finish(t, p.command(dir, "experiment.name=other", steps), 0).check(t, exit.IO, "free space on that disk")
}

// strace temporarily makes system calls of the program fail with EIO (row D6).
func TestAFailingDiskIsNeverBelieved(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	strace := needtest.Program(t, "strace", "strace")
	for _, call := range []string{"fsync", "/^renameat", "mkdirat"} {
		t.Run(strings.Trim(call, "/^"), func(t *testing.T) {
			dir := t.TempDir()
			w := watch(t, p.command(dir, "train.steps=1000000", "train.log_interval=1"))
			w.await(t, "step 20/")
			fault := exec.Command(strace, "-f", "-q", "-o", os.DevNull, "-p", strconv.Itoa(w.cmd.Process.Pid), "-e",
				"trace="+call, "-e", "inject="+call+":error=EIO")
			attach(t, w, fault)
			time.AfterFunc(patience, func() { fault.Process.Signal(os.Interrupt) })
			w.await(t, "input/output error; earlier checkpoints are unchanged")
			w.goesOn(t, dir, func() {
				fault.Process.Signal(os.Interrupt) // ends strace, which then detaches from the program
				fault.Wait()
			})
		})
	}
}

// The program must refuse unusable folders, and must not write outside the folder of the run (row D7).
func TestFoldersThatCannotBeUsedAreNamed(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	if !inOwnMounts(t) {
		return
	}
	outside := t.TempDir()
	link := func(name string) func(dir string) error {
		return func(dir string) error {
			at := filepath.Join(dir, "run", name)
			return errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(outside, at))
		}
	}
	linkFile := func(name string) func(dir string) error {
		return func(dir string) error {
			at := filepath.Join(dir, "run", name)
			return errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(filepath.Join(outside, "file"), at))
		}
	}
	file := func(name string) func(dir string) error {
		return func(dir string) error {
			at := filepath.Join(dir, name)
			return errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, nil, 0o644))
		}
	}
	const leads = "leads out of the folder"
	for _, c := range []struct {
		name    string
		prepare func(dir string) error
		says    string
	}{
		{"read-only", mountReadOnly, "read-only file system"},
		{"the run is a file", file("run"), "not a directory"},
		{"checkpoints is a file", file("run/checkpoints"), "not a directory"},
		{"logs is a file", file("run/logs"), "not a directory"},
		{"the log is a folder", func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, "run", "logs", "train.log"), 0o755)
		}, "is a directory"},
		{"the run is a link", link(""), leads},
		{"checkpoints is a link", link("checkpoints"), leads},
		{"logs is a link", link("logs"), leads},
		{"configs is a link", link("configs"), leads},
		{"results is a link", link("results"), leads},
		{"the log is a link", linkFile("logs/train.log"), leads},
		{"the metrics are a link", linkFile("logs/rank_0_metrics.json"), leads},
		{"the summary is a link", linkFile("logs/summary.json.tmp"), leads},
		{"the histogram is a link", linkFile("logs/latency_histogram.png"), leads},
		{"TensorBoard's folder is a link", link("logs/tensorboard"), leads},
		{"the results are a link", linkFile("results/results.md"), leads},
		{"the lock is a link", linkFile(".lock"), leads},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := c.prepare(dir); err != nil {
				t.Fatal(err)
			}
			defer unmount(dir) // removes the mount
			got := finish(t, p.command(dir, "train.steps=20"), 0)
			got.check(t, exit.Usage, c.says)
			got.check(t, exit.Usage, dir)
			if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
				t.Fatalf("written outside: %v, %v", left, err)
			}
		})
	}
}

// forOtherUsers copies the program into a folder that other users can read. It returns this folder and the path of the
// copy.
func (p program) forOtherUsers(t *testing.T) (dir, built string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hetero-train-owner-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	built = filepath.Join(dir, "hetero-train")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(built, clitest.ReadFile(t, p.path), 0o755)); err != nil {
		t.Fatal(err)
	}
	return dir, built
}

// The program runs as a user without write access to the folder (row D7).
func TestAFolderOfSomebodyElseIsNamed(t *testing.T) {
	t.Parallel()
	needtest.Root(t, "to become another user")
	p := buildProgram(t)
	dir, built := p.forOtherUsers(t)
	theirs := filepath.Join(dir, "theirs")
	if err := os.Mkdir(theirs, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(built, "--set", "device.kind=reference", "--set", "model.name=simple_cnn", "--set",
		"data.dataset=synthetic_image", "--set", "data.image_size=8",
		"--set", "data.num_samples=16", "--set", "data.batch_size=8", "--set", "train.epochs=1", "--set",
		"experiment.output_dir="+theirs)
	cmd.Dir = dir
	const nobody = 65534
	runsAs(cmd, nobody)
	finish(t, cmd, 0).check(t, exit.Usage, theirs)
	finish(t, exec.Command(built, append(cmd.Args[1:], "--set", "experiment.name=mine")...), 0).check(t, exit.Done, "")
	if err := os.Chmod(filepath.Join(theirs, "mine", "checkpoints"), 0o700); err != nil {
		t.Fatal(err)
	}
	again := exec.Command(built, append(cmd.Args[1:], "--set", "experiment.name=mine", "--set", "train.epochs=2")...)
	again.Dir, again.SysProcAttr = dir, cmd.SysProcAttr
	finish(t, again, 0).check(t, exit.Usage, "permission denied")
}

// The folder of the run is removed during training. The program must not create another folder in its place (row D7).
func TestAFolderThatVanishesInMidRunIsExitCode7(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	var dir string
	var w *watched
	for steps := int64(600); ; steps *= 10 { // more steps, in case the run ends before this test gets a CPU
		dir = t.TempDir()
		w = watch(t, p.command(dir, fmt.Sprint("train.steps=", steps), "train.log_interval=1"))
		w.await(t, "step 20/")
		w.cmd.Process.Signal(freeze)
		if stepsRecorded(t, dir) < steps/2 || steps > 10_000 {
			break
		}
		w.cmd.Process.Kill()
	}
	// The removal is repeated, because a thread of the run can still create a file.
	for begun := time.Now(); os.RemoveAll(filepath.Join(dir, "run")) != nil; {
		if time.Since(begun) > patience {
			t.Fatal("the folder cannot be removed")
		}
	}
	w.cmd.Process.Signal(thaw)
	w.end(t, exit.IO, "no such file or directory")
	w.await(t, "the final save failed")
	if _, err := os.Stat(filepath.Join(dir, "run")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is there again: %v", err)
	}
}

// During training, the path of the run is replaced by a link. The run must continue to use the folder that it opened
// (row D7).
func TestALinkSwappedInMidRunIsNotFollowed(t *testing.T) {
	t.Parallel()
	p, dir, outside := buildProgram(t), t.TempDir(), t.TempDir()
	w := watch(t, p.command(dir, "train.steps=1000000", "train.log_interval=1"))
	w.await(t, "step 20/")
	folder := filepath.Join(dir, "run", "checkpoints")
	if err := errors.Join(os.Rename(folder, folder+".moved"), os.Symlink(outside, folder)); err != nil {
		t.Fatal(err)
	}
	w.await(t, "step 60/")
	w.cmd.Process.Signal(syscall.SIGTERM)
	w.end(t, exit.Terminated, "saved")
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("written outside: %v, %v", left, err)
	}
	if c, _, err := checkpoint.Latest(folder + ".moved"); err != nil || c.State.Step < 60 {
		t.Errorf("in the folder that was moved: %v, %v", c, err)
	} else {
		c.Close()
	}
}

// The program runs with limits that ulimit sets (row F14). It must train, or name the limit.
func TestLimitsOfHandlesAndAddressesAreEnoughOrNamed(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	for _, c := range []struct {
		limit string
		code  int
		says  string
	}{
		{"-n 64", exit.Done, ""},
		{"-n 12", exit.Usage, "the limit of open files is too low: got 12, want at least "},
		{"-v 3500000", exit.Done, ""},
	} {
		run := p.command(t.TempDir(), "train.steps=20")
		limited := exec.Command("sh", append([]string{"-c", `ulimit ` + c.limit + ` && exec "$0" "$@"`, run.Path},
			run.Args[1:]...)...)
		finish(t, limited, 0).check(t, c.code, c.says)
	}
}

// strace delays each flush of a run, as on an unresponsive file system. Training must continue, and the run must name
// the file. A second SIGTERM must end the process immediately.
func TestADiskThatDoesNotAnswerStopsNoTraining(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	strace := needtest.Program(t, "strace", "strace")
	dir := t.TempDir()
	w := watch(t, p.command(dir, "train.steps=1000000", "train.log_interval=1", "checkpoint.interval_steps=0",
		"checkpoint.interval_seconds=0", "checkpoint.best=false"))
	w.await(t, "step 20/")
	held := exec.Command(strace, "-f", "-q", "-o", os.DevNull, "-p", strconv.Itoa(w.cmd.Process.Pid), "-e",
		"trace=fsync", "-e", "inject=fsync:delay_enter=600000000")
	attach(t, w, held)
	w.cmd.Process.Signal(platform.SaveSignals[0]) // requests a save
	w.await(t, "the disk does not answer; training continues", "file="+dir)
	w.cmd.Process.Signal(platform.SaveSignals[0])
	w.await(t, "training waits for the disk")
	w.cmd.Process.Signal(syscall.SIGTERM)
	w.await(t, "SIGTERM: the run finishes the step, saves and ends")
	time.Sleep(3 * time.Second) // signals that arrive within 2 s count as one
	w.cmd.Process.Signal(syscall.SIGTERM)
	w.await(t, "stopped by SIGTERM: the disk has not answered for")
	held.Process.Kill() // strace also delays the end of the process
	w.end(t, exit.Killed, "the run is not saved")
}

// attach starts strace, and waits until it traces the program.
func attach(t *testing.T, w *watched, strace *exec.Cmd) {
	t.Helper()
	var said bytes.Buffer
	strace.Stderr = &said
	if err := strace.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		strace.Process.Kill()
		strace.Wait()
	})
	attached := func() bool {
		status := string(clitest.ReadFile(t, filepath.Join("/proc", strconv.Itoa(w.cmd.Process.Pid), "status")))
		return !strings.Contains(status, "TracerPid:\t0\n")
	}
	for begun := time.Now(); !attached(); time.Sleep(time.Millisecond) {
		if strace.ProcessState != nil || time.Since(begun) > patience {
			strace.Process.Kill()
			strace.Wait()
			needtest.Missing(t, "ptrace", "strace may not trace other processes: "+said.String())
		}
	}
}
