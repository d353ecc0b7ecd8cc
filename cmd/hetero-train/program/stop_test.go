package program

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/run"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// ended is the result of a finished process.
type ended struct {
	code           int
	stdout, stderr string
}

// finish runs cmd to its end. If signal is not 0, finish sends it after the first step.
func finish(t *testing.T, cmd *exec.Cmd, signal syscall.Signal) ended {
	t.Helper()
	return finishAfterStep(t, cmd, func() {
		if signal != 0 {
			cmd.Process.Signal(signal)
		}
	})
}

// finishAfterStep runs cmd to its end. It calls do after cmd has printed a step.
func finishAfterStep(t *testing.T, cmd *exec.Cmd, do func()) ended {
	t.Helper()
	var out, messages bytes.Buffer
	cmd.Stderr = &messages
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, shown := bufio.NewScanner(pipe), false
	for lines.Scan() {
		out.WriteString(lines.Text() + "\n")
		if !shown && strings.HasPrefix(lines.Text(), "step ") {
			shown = true
			do()
		}
	}
	return ended{exitOf(t, cmd.Wait()), out.String(), messages.String()}
}

func (e ended) check(t *testing.T, code int, says string) {
	t.Helper()
	if e.code != code || !strings.Contains(e.stderr, says) {
		t.Errorf("got exit code %d, want %d and %q in\n%s", e.code, code, says, e.stderr)
	}
}

// The program must end with each documented exit code.
func TestRunsEndWithTheDocumentedExitCodes(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	notImages := filepath.Join(t.TempDir(), "images.tar")
	if err := os.WriteFile(notImages, []byte("no archive"), 0o644); err != nil {
		t.Fatal(err)
	}
	const forever = "train.steps=100000"
	for _, c := range []struct {
		name   string
		set    []string
		signal syscall.Signal
		want   int
		says   string
	}{
		{"done", []string{"train.steps=10"}, 0, exit.Done, ""},
		{"interrupt", []string{forever}, syscall.SIGINT, exit.Interrupted, "saved"},
		{"terminate", []string{forever}, syscall.SIGTERM, exit.Terminated, "saved"},
		{"lost terminal", []string{forever}, syscall.SIGHUP, exit.Terminated, "saved"},
		{"unknown key", []string{"train.stepz=1"}, 0, exit.Usage, "train.steps"},
		{"diverged", []string{"optimizer.lr=1e38", "optimizer.name=sgd", "train.nan_patience=2",
			"train.nan_rollbacks=1"}, 0, exit.Diverged, "not finite"},
		{"damaged data", []string{"data.dataset=images", "data.path=" + notImages, "data.image_size=8"}, 0, exit.Data,
			"images.tar"},
		{"too small an image", []string{"model.channels=[1,1,1,1,1,1]", "train.steps=1"}, 0, exit.Usage,
			"data.image_size"},
		{"too large a batch", []string{"model.channels=[16]", "data.batch_size=4096", "data.image_size=1024",
			"data.num_samples=4096"}, 0, exit.Device, "samples fit; lower data.batch_size"},
		{"a device without values", []string{"device.kind=null", "train.steps=3"}, 0, exit.Done, ""},
		{"more threads than this process has CPUs", []string{"device.threads=4096", "train.steps=1"}, 0, exit.Done,
			"device.threads"},
	} {
		t.Run(c.name, func(t *testing.T) {
			finish(t, p.command(t.TempDir(), append(c.set, "train.log_interval=1")...), c.signal).check(t, c.want,
				c.says)
		})
	}
}

// nohup ignores SIGHUP, so a run under nohup must continue when its terminal closes.
func TestARunUnderNohupOutlivesItsTerminal(t *testing.T) {
	t.Parallel()
	p := buildRanks(t)
	for _, ranks := range []string{"1", "2"} {
		cmd := p.command(t.TempDir(), "parallel.ranks="+ranks, "train.steps=100000", "train.log_interval=1")
		cmd = exec.Command("/bin/sh", append([]string{"-c", `trap "" HUP; exec "$0" "$@"`}, cmd.Args...)...)
		e := finishAfterStep(t, cmd, func() {
			cmd.Process.Signal(syscall.SIGHUP)
			cmd.Process.Signal(syscall.SIGTERM)
		})
		e.check(t, exit.Terminated, "SIGTERM")
		if strings.Contains(e.stderr, "SIGHUP") {
			t.Errorf("%s ranks: SIGHUP ended the run:\n%s", ranks, e.stderr)
		}
	}
}

func TestTrainingGoesOnWhenNobodyReadsStandardOutput(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	cmd := p.command(dir, "train.steps=60", "train.log_interval=1")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	// The reader reads one byte and closes the pipe, as `head -c 1` does.
	if _, err := io.ReadFull(reader, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	reader.Close()
	if code := exitOf(t, cmd.Wait()); code != exit.Done {
		t.Errorf("got exit code %d, want %d", code, exit.Done)
	}
	log := string(clitest.ReadFile(t, filepath.Join(dir, "run", "logs", "train.log")))
	for _, want := range []string{"standard output is closed", "step 60/60", "done: 60 steps"} {
		if !strings.Contains(log, want) {
			t.Errorf("train.log lacks %q:\n%s", want, log)
		}
	}
}

func TestSyntheticDataNeedsNoHome(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	cmd := p.command(t.TempDir(), "train.steps=1")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	finish(t, cmd, 0).check(t, exit.Done, "")
}

func TestASecondRunInTheSameFolderIsRefused(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	first := p.command(dir, "train.steps=1000000")
	pipe, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		first.Process.Kill()
		first.Wait()
	}()
	if _, err := bufio.NewReader(pipe).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	finish(t, p.command(dir), 0).check(t, exit.IO, "in use")
}

func TestWhatARunGoesOnFromIsChecked(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	finish(t, p.command(dir, "train.steps=20"), 0).check(t, exit.Done, "")
	finish(t, p.command(dir, "train.steps=30", "optimizer.name=sgd"), 0).check(t, exit.Usage, "optimizer.name")
	finish(t, p.command(dir, "train.steps=30", "model.channels=[3, 5]"), 0).check(t, exit.Usage, "channels")
	if got := finish(t, p.command(dir, "train.steps=20", "data.path=gone"), 0); got.code != exit.Usage {
		t.Errorf("a finished run with a wrong setting: got exit code %d, want %d", got.code, exit.Usage)
	}
	if got := finish(t, p.command(dir, "train.steps=20"), 0); got.code != exit.Done ||
		!strings.Contains(got.stdout, "is finished") ||
		!strings.Contains(got.stdout, "train.steps = 20 ended the run") {
		t.Errorf("a finished run: got %+v", got)
	}
	at := filepath.Join(dir, "run", "checkpoints", "step-00000020")
	if err := os.Truncate(filepath.Join(at, "model.safetensors"), 100); err != nil {
		t.Fatal(err)
	}
	finish(t, p.command(t.TempDir(), "train.resume="+at), 0).check(t, exit.Data, "corrupt")
}

func TestSignalsEndARunThatIsBeginning(t *testing.T) {
	t.Parallel()
	t.Run("one rank", func(t *testing.T) { endBeginning(t, buildProgram(t), "1") })
	t.Run("two ranks", func(t *testing.T) { endBeginning(t, buildRanks(t), "2") })
}

// endBeginning ends a run with SIGTERM, if possible before its first step. If the exit code is 75, the run must report
// that no step is lost, because no steps had to be saved.
func endBeginning(t *testing.T, p program, ranks string) {
	t.Helper()
	// The program catches signals right after its first line. On a busy machine, this may take longer than the first
	// pauses, and the signal then kills the program.
	for _, pause := range []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, 2 * time.Second,
		10 * time.Second} {
		cmd := p.command(t.TempDir(), "parallel.ranks="+ranks, "data.num_samples=2000000", "data.image_size=64",
			"data.batch_size=4096", "train.steps=100000")
		messages, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := bufio.NewReader(messages)
		if _, err := said.ReadString('\n'); err != nil { // waits for the line that states the configuration
			t.Fatal(err)
		}
		time.Sleep(pause)
		cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(patience, func() { cmd.Process.Kill() })
		rest, _ := io.ReadAll(said)
		late.Stop()
		err = cmd.Wait()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() &&
			status.Signal() == syscall.SIGTERM && pause < 10*time.Second {
			t.Logf("after %v: killed before the program caught the signal", pause)
			continue
		}
		if code := exitOf(t, err); code != exit.Terminated {
			t.Errorf("got exit code %d, want %d\n%s", code, exit.Terminated, rest)
		}
		if said := string(rest); !strings.Contains(said, "stopped by SIGTERM before its first step: no step is lost") &&
			!strings.Contains(said, "saved; the run continues from step") {
			t.Errorf("got\n%s\nwant a message that the run is saved, or that it loses no step", rest)
		}
		return
	}
}

func TestASignalSavesAndTrainingGoesOn(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	cmd := p.command(dir, "train.steps=1000000", "train.eval_interval=0", "checkpoint.interval_steps=0")
	saved := func() []string {
		list, _ := filepath.Glob(filepath.Join(dir, "run", "checkpoints", "step-*"))
		return list
	}
	e := finishAfterStep(t, cmd, func() {
		cmd.Process.Signal(platform.SaveSignals[0])
		end := time.Now().Add(patience)
		for len(saved()) == 0 && time.Now().Before(end) {
			time.Sleep(10 * time.Millisecond)
		}
		// The final checkpoint must be of a later step than the one before, so the test waits for two more steps.
		for steps := stepsRecorded(t, dir); stepsRecorded(t, dir) < steps+2 && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		cmd.Process.Signal(syscall.SIGINT)
	})
	e.check(t, exit.Interrupted, "SIGUSR1: the run saves after this step and continues")
	if !strings.Contains(e.stderr, "INF trainer: saved checkpoint=") {
		t.Errorf("want a checkpoint named in the log:\n%s%s", e.stdout, e.stderr)
	}
	if list := saved(); len(list) != 2 {
		t.Errorf("got the checkpoints %v, want one in mid-run and one of the end", list)
	}
}

// One Ctrl-C can cause two signals: one from the terminal, and one from the parent process. They must count as one.
func TestAnInterruptThatComesTwiceAtOnceIsOne(t *testing.T) {
	p := buildProgram(t)
	for attempt := 1; ; attempt++ {
		cmd := p.command(t.TempDir(), "train.steps=1000000", "train.eval_interval=0")
		var apart time.Duration
		e := finishAfterStep(t, cmd, func() {
			begun := time.Now()
			cmd.Process.Signal(syscall.SIGINT)
			time.Sleep(time.Millisecond)
			cmd.Process.Signal(syscall.SIGINT)
			apart = time.Since(begun)
		})
		// A larger distance means that a busy machine stopped this test between the signals.
		if apart < time.Second || attempt == 3 {
			e.check(t, exit.Interrupted, "saved")
			return
		}
	}
}

// After early stopping has ended a run, the run must continue if the user increases the patience. This must also hold
// if neither steps nor epochs limit the run. If the same command is repeated, it must change no record.
func TestARunThatEndedEarlyGoesOnWithMorePatience(t *testing.T) {
	t.Parallel()
	dir, config := t.TempDir(), clitest.WriteConfig(t, smallRun)
	before := ""
	for _, c := range []struct {
		patience int
		steps    int64
		says     string
	}{
		{1, 20, "finished early"},
		{1, 20, "train.early_stop_patience = 1 ended the run: a larger value continues this run"},
		{3, 40, "finished early"}} {
		var out, messages bytes.Buffer
		args := []string{"-c", config}
		for _, s := range []string{"experiment.output_dir=" + dir, "train.steps=0", "train.max_seconds=300",
			"train.eval_interval=1", "train.early_stop_min_delta=1",
			fmt.Sprintf("train.early_stop_patience=%d", c.patience)} {
			args = append(args, "--set", s)
		}
		code := runLine(context.Background(), args,
			session.Environment{Stdout: &out, Stderr: &messages, Train: run.Train})
		r, err := experiment.ReadResult(filepath.Join(dir, "run"))
		if err != nil || code != exit.Done || r.Steps != c.steps || r.GaveUp == "" || r.State != experiment.Finished ||
			!strings.Contains(out.String(), c.says) {
			t.Fatalf("patience %d: got exit code %d, %v, %+v, want an end at step %d\n%s%s", c.patience, code, err, r,
				c.steps, out.String(), messages.String())
		}
		now := snapshot(t, filepath.Join(dir, "run"))
		if repeated := c.says != "finished early"; repeated != (now == before) {
			t.Errorf("patience %d: files before\n%s\nand after\n%s", c.patience, before, now)
		}
		before = now
	}
}

// After the folder of a run was moved, the same command does not find its checkpoint in the old place. The program must
// say so.
func TestARunWhoseFolderWasMovedSaysSo(t *testing.T) {
	p, dir := buildProgram(t), t.TempDir()
	at, away := filepath.Join(dir, "run"), filepath.Join(dir, "away")
	cmd := p.command(dir, "train.steps=1000000", "train.log_interval=1")
	e := finishAfterStep(t, cmd, func() {
		if err := os.Rename(at, away); err != nil {
			t.Error(err)
		}
		cmd.Process.Signal(syscall.SIGTERM)
	})
	e.check(t, exit.Terminated, "saved, but the folder of the run was moved: move it back to "+at+
		", and the run continues from step")
	if err := os.Rename(away, at); err != nil {
		t.Fatal(err)
	}
	again := p.command(dir, "train.steps=1000000", "train.log_interval=1")
	if e := finish(t, again, syscall.SIGTERM); e.code != exit.Terminated ||
		strings.Contains(e.stdout+e.stderr, "step 1/") {
		t.Errorf("got exit code %d and\n%s%s\nwant %d, and a run that continues", e.code, e.stdout, e.stderr,
			exit.Terminated)
	}
}
