package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
)

// paused is a reader that blocks until the test continues it.
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
	const says = "lines are missing here, because the program that reads this output is too slow"
	if got := strings.Count(text, line); got != kept {
		t.Errorf("%d progress lines arrived, want %d", got, kept)
	}
	if want := fmt.Sprintf("hetero-train: %d %s; the log file of the run has all lines\nan error\n",
		3*progressPending/len(line)-kept, says); !strings.Contains(text, want) {
		t.Errorf("the text lacks %q", want)
	}
	if strings.Count(text, says) != 2 || !strings.HasSuffix(text, "the next\n") {
		t.Errorf("got %d notes and the end %q, want 2 and the next line", strings.Count(text, says),
			text[max(len(text)-100, 0):])
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
	out, messages := Unblocked(writer, io.Discard, false)
	said := make(chan error, 2)
	OutletOf(out).OnGone(func(err error) { said <- err })
	for range 3 {
		if _, err := fmt.Fprintln(out, "a line"); err != nil {
			t.Error(err)
		}
		Flushed(out, messages, time.Minute)
	}
	if err := <-said; !errors.Is(err, syscall.EPIPE) || len(said) != 0 {
		t.Errorf("got %v and %d more, want one EPIPE", err, len(said))
	}
}

func TestOneFileForBothStreamsKeepsTheOrder(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "both"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	out, messages := Unblocked(file, file, false)
	var want strings.Builder
	for i := range 200 {
		fmt.Fprintln([]io.Writer{out, messages}[i%2], i)
		fmt.Fprintln(&want, i)
	}
	Flushed(out, messages, time.Minute)
	if got := string(clitest.ReadFile(t, file.Name())); got != want.String() {
		t.Errorf("got %q", got)
	}
}
