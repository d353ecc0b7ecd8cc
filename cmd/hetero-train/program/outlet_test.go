package program

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// paused is a reader that takes nothing until it goes on.
type paused struct {
	goOn chan struct{}
	got  bytes.Buffer
}

func (p *paused) Write(b []byte) (int, error) {
	<-p.goOn
	return p.got.Write(b)
}

func TestAPausedReaderMissesProgressLinesFirst(t *testing.T) {
	reader := &paused{goOn: make(chan struct{})}
	o := &outlet{w: reader}
	line := strings.Repeat("p", 1023) + "\n"
	for range 3 * progressPending / len(line) {
		fmt.Fprint(progress{o}, line)
	}
	fmt.Fprintln(o, "an error")
	if missing := o.flush(time.Millisecond); missing < progressPending/len(line) {
		t.Errorf("%d lines are said to be unread, want all in the queue and all dropped", missing)
	}
	for range 2 * pending / len(line) {
		fmt.Fprint(o, strings.ToUpper(line))
	}
	close(reader.goOn)
	if missing := o.flush(time.Minute); missing != 0 {
		t.Errorf("%d lines are unread after the reader went on", missing)
	}
	fmt.Fprint(progress{o}, "the next\n")
	o.flush(time.Minute)
	text := reader.got.String()
	kept := progressPending / len(line)
	const says = "lines are missing here: the reader was too slow"
	if got := strings.Count(text, line); got != kept {
		t.Errorf("%d progress lines arrived, want %d", got, kept)
	}
	if want := fmt.Sprintf("hetero-train: %d %s; the log file of the run has them\nan error\n", 3*progressPending/len(line)-kept, says); !strings.Contains(text, want) {
		t.Errorf("the text lacks %q", want)
	}
	if strings.Count(text, says) != 2 || !strings.HasSuffix(text, "the next\n") {
		t.Errorf("got %d notes and the end %q, want 2 and the next line", strings.Count(text, says), text[max(len(text)-100, 0):])
	}
	if len(text) > pending+4096 {
		t.Errorf("%d bytes waited, want at most %d", len(text), pending)
	}
}

func TestAReaderThatLeavesIsReportedOnce(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	out, messages := unblocked(writer, io.Discard, false)
	said := make(chan error, 2)
	outletOf(out).onGone(func(err error) { said <- err })
	for range 3 {
		if _, err := fmt.Fprintln(out, "a line"); err != nil {
			t.Error(err)
		}
		flushed(out, messages, time.Minute)
	}
	if err := <-said; !errors.Is(err, unix.EPIPE) || len(said) != 0 {
		t.Errorf("got %v and %d more, want one EPIPE", err, len(said))
	}
}

func TestOneFileForBothStreamsKeepsTheOrder(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "both"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	out, messages := unblocked(file, file, false)
	var want strings.Builder
	for i := range 200 {
		fmt.Fprintln([]io.Writer{out, messages}[i%2], i)
		fmt.Fprintln(&want, i)
	}
	flushed(out, messages, time.Minute)
	if got := string(readFile(t, file.Name())); got != want.String() {
		t.Errorf("got %q", got)
	}
}

// The reader of standard output and error leaves after the first line, as head -1 does. SIGPIPE used to end the supervisor.
func TestRanksTrainOnWhenNobodyReads(t *testing.T) {
	p := buildRanks(t)
	for _, ranks := range []string{"1", "2"} {
		dir := t.TempDir()
		cmd := p.command(dir, "parallel.ranks="+ranks, "train.steps=60", "train.log_interval=1")
		reader := readBoth(t, cmd, 0)
		if _, err := bufio.NewReader(reader).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		reader.Close()
		if code := exitOf(t, cmd.Wait()); code != exitDone {
			t.Errorf("%s ranks: got exit code %d, want %d", ranks, code, exitDone)
		}
		if got := resultOf(t, filepath.Join(dir, "run")); got.Steps != 60 {
			t.Errorf("%s ranks: %d steps, want 60", ranks, got.Steps)
		}
	}
}

// A reader that is paused (Ctrl-S, less) holds up no rank, and neither does the supervisor that writes what ranks say.
func TestAPausedReaderHoldsUpNoRank(t *testing.T) {
	p := buildRanks(t)
	for _, ranks := range []string{"1", "2"} {
		dir := t.TempDir()
		cmd := p.command(dir, "parallel.ranks="+ranks, "train.steps=150", "train.log_interval=1")
		const capacity = 4096 // bytes: filled after some thirty of the steps
		reader := readBoth(t, cmd, capacity)
		defer reader.Close()
		if code := exitOf(t, cmd.Wait()); code != exitDone {
			t.Errorf("%s ranks: got exit code %d, want %d", ranks, code, exitDone)
		}
		if got := resultOf(t, filepath.Join(dir, "run")); got.Steps != 150 {
			t.Errorf("%s ranks: %d steps, want 150", ranks, got.Steps)
		}
		log := string(readFile(t, filepath.Join(dir, "run", "logs", "train.log")))
		for _, want := range []string{"step 75/150", "done: 150 steps"} {
			if !strings.Contains(log, want) {
				t.Errorf("%s ranks: train.log lacks %q", ranks, want)
			}
		}
	}
}

// readBoth starts a command with one pipe for standard output and error. capacity is the pipe's in bytes; 0: as the system has it.
func readBoth(t *testing.T, cmd *exec.Cmd, capacity int) *os.File {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if capacity > 0 {
		if _, err := unix.FcntlInt(writer.Fd(), unix.F_SETPIPE_SZ, capacity); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	return reader
}
