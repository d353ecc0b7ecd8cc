package program

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/run"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
)

// sweepOf returns the arguments of a sweep over batch sizes with a tiny model.
func sweepOf(dir string, args ...string) []string {
	return append([]string{"bench", "sweep", "--device", "cpu", "--model", "simple_cnn", "--image-size", "8",
		"--classes", "10", "--threads", "1", "--output-dir", dir}, args...)
}

func TestBenchSweepNamesTheKneeAndTheLargestBatch(t *testing.T) {
	hasFastBF16(t) // skips the test if the CPU library is missing
	dir := t.TempDir()
	o := execute(sweepOf(dir, "--batch-sizes", "8,2,2000000", "--precision", "f32", "--seconds", "0.01"))
	if o.code != exit.Usage || !strings.Contains(o.stderr, "--batch-sizes: got 2000000, want 1 to 1048576") {
		t.Errorf("got exit code %d and %q, want the number refused", o.code, o.stderr)
	}
	// At this size, 1048576 images need more than a terabyte. The command must refuse this size before it allocates the
	// memory.
	o = execute(sweepOf(dir, "--image-size", "64", "--batch-sizes", "2,1,1048576", "--precision", "f32,bf16",
		"--seconds", "0.01", "--rounds", "2"))
	for _, want := range []string{"f32, 1 threads", "bf16, 1 threads", "knee: batch ", "largest batch that fits in ",
		"1048576: does not fit in the memory", "written: "} {
		if o.code != exit.Done || !strings.Contains(o.stdout, want) {
			t.Errorf("got exit code %d, %q and %q, want %q", o.code, o.stdout, o.stderr, want)
		}
	}
	var got struct {
		Complete bool
		Curves   []struct {
			Precision string
			Largest   int `json:"largest_batch"`
			Knee      int `json:"knee_batch"`
			Skipped   []int
			Points    []struct {
				Batch     int     `json:"batch_size"`
				Seconds   float64 `json:"step_seconds"`
				Low, High float64
				Rounds    int
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "simple_cnn.json"))
	if err != nil || json.Unmarshal(text, &got) != nil || !got.Complete || len(got.Curves) != 2 {
		t.Fatalf("got %s, %v, want two complete curves", text, err)
	}
	for _, c := range got.Curves {
		if len(c.Points) != 2 || c.Points[0].Batch != 1 || c.Points[1].Rounds != 2 || !(c.Points[1].Seconds > 0) ||
			c.Knee == 0 || c.Largest < 2 || len(c.Skipped) != 1 {
			t.Errorf("got %+v", c)
		}
	}
	table, err := os.Open(filepath.Join(dir, "simple_cnn.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if lines, err := csv.NewReader(table).ReadAll(); err != nil || len(lines) != 5 {
		t.Errorf("got %v, %v, want a header and four points", lines, err)
	}
	for name, head := range map[string]string{"simple_cnn.png": "\x89PNG", "simple_cnn.svg": "<?xml"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.HasPrefix(string(text), head) {
			t.Errorf("%s: got %.10q, %v", name, text, err)
		}
	}
}

func TestAnInterruptedSweepKeepsWhatItMeasured(t *testing.T) {
	hasFastBF16(t)
	dir := t.TempDir()
	seen := make(chan struct{})
	messages := &untilText{text: "round 2/100", seen: seen}
	var out bytes.Buffer
	ended := make(chan int)
	go func() {
		ended <- runLine(t.Context(), sweepOf(dir, "--batch-sizes", "1,2", "--precision", "f32", "--seconds", "0.5",
			"--rounds", "100"),
			session.Environment{Stdout: &out, Stderr: messages, Train: run.Train})
	}()
	<-seen
	if err := sendTo(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := <-ended; code != exit.Interrupted ||
		!strings.Contains(out.String(), "interrupted: the table contains what was measured so far") ||
		!strings.Contains(out.String(), "knee: batch") {
		t.Errorf("got exit code %d, %q and %q, want a table", code, out.String(), messages.all.String())
	}
	if text, err := os.ReadFile(filepath.Join(dir, "simple_cnn.json")); err != nil ||
		!strings.Contains(string(text), `"complete": false`) {
		t.Errorf("got %.200q, %v, want an incomplete sweep", text, err)
	}
}

// untilText collects output, and closes a channel once the output contains text.
type untilText struct {
	all  bytes.Buffer
	text string
	seen chan struct{} // closed when the text is found, then nil
}

func (w *untilText) Write(b []byte) (int, error) {
	w.all.Write(b)
	if w.seen != nil && strings.Contains(w.all.String(), w.text) {
		close(w.seen)
		w.seen = nil
	}
	return len(b), nil
}
