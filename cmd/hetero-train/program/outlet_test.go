package program

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// The reader of standard output and standard error ends after the first line, as `head -1` does. SIGPIPE must not end
// the supervisor.
func TestRanksTrainOnWhenNobodyReads(t *testing.T) {
	t.Parallel()
	p := buildRanks(t)
	for _, ranks := range []string{"1", "2"} {
		dir := t.TempDir()
		cmd := p.command(dir, "parallel.ranks="+ranks, "train.steps=60", "train.log_interval=1")
		reader := readBoth(t, cmd, 0)
		if _, err := bufio.NewReader(reader).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		reader.Close()
		if code := exitOf(t, cmd.Wait()); code != exit.Done {
			t.Errorf("%s ranks: got exit code %d, want %d", ranks, code, exit.Done)
		}
		if got := resultOf(t, filepath.Join(dir, "run")); got.Steps != 60 {
			t.Errorf("%s ranks: %d steps, want 60", ranks, got.Steps)
		}
	}
}

// A paused reader (Ctrl-S, less) must delay neither a rank nor the supervisor, which writes the output of the ranks.
func TestAPausedReaderHoldsUpNoRank(t *testing.T) {
	t.Parallel()
	p := buildRanks(t)
	for _, ranks := range []string{"1", "2"} {
		dir := t.TempDir()
		cmd := p.command(dir, "parallel.ranks="+ranks, "train.steps=150", "train.log_interval=1")
		const capacity = 4096 // in bytes; the pipe is full after about thirty steps
		reader := readBoth(t, cmd, capacity)
		defer reader.Close()
		if code := exitOf(t, cmd.Wait()); code != exit.Done {
			t.Errorf("%s ranks: got exit code %d, want %d", ranks, code, exit.Done)
		}
		if got := resultOf(t, filepath.Join(dir, "run")); got.Steps != 150 {
			t.Errorf("%s ranks: %d steps, want 150", ranks, got.Steps)
		}
		log := string(clitest.ReadFile(t, filepath.Join(dir, "run", "logs", "train.log")))
		for _, want := range []string{"step 75/150", "done: 150 steps"} {
			if !strings.Contains(log, want) {
				t.Errorf("%s ranks: train.log lacks %q", ranks, want)
			}
		}
	}
}

// readBoth starts a command with one pipe for standard output and standard error. capacity is the size of the pipe in
// bytes; 0: the system's default.
func readBoth(t *testing.T, cmd *exec.Cmd, capacity int) *os.File {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if capacity > 0 {
		if err := setPipeSize(writer, capacity); err != nil {
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
