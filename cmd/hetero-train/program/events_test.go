package program

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// After a resume, the start of the second process must follow the events of the first process in the file.
func TestEventsOfARun(t *testing.T) {
	t.Parallel()
	p, dir := buildProgram(t), t.TempDir()
	for _, steps := range []int{52, 110} {
		finish(t, p.command(dir, fmt.Sprint("train.steps=", steps)), 0).check(t, exit.Done, "")
	}
	var got []string
	for line := range strings.Lines(
		string(clitest.ReadFile(t, filepath.Join(dir, "run", "logs", runtime.EventsFile)))) {
		var e runtime.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Time.IsZero() {
			t.Fatalf("%s: %v", line, err)
		}
		switch {
		case e.Start != nil:
			got = append(got, fmt.Sprint("start ", e.Step))
			if e.Start.Ranks != 1 || e.Start.BatchSize < 1 || e.Start.Unit == "" || len(e.Start.Metrics) == 0 {
				t.Errorf("got start %+v", e.Start)
			}
		case e.Length != nil:
			got = append(got, fmt.Sprint("length ", e.Length.Steps))
		case e.Bottleneck != nil:
			got = append(got, fmt.Sprint("bottleneck ", e.Step))
			if e.Bottleneck.Text == "" || len(e.Bottleneck.Parts) != 8 || !(e.Bottleneck.Seconds > 0) {
				t.Errorf("got verdict %+v", e.Bottleneck)
			}
		case e.Evaluation != nil:
			if e.Evaluation.Loss == nil || e.Evaluation.Metrics["top1"] == nil {
				t.Errorf("got evaluation %+v", e.Evaluation)
			}
			got = append(got, fmt.Sprint("evaluation ", e.Step))
		case e.Checkpoint != nil:
			got = append(got, fmt.Sprint("checkpoint ", e.Step))
		}
	}
	for _, want := range []string{"start 0", "length 52", "checkpoint 52", "start 52", "length 110", "checkpoint 110",
		"evaluation 110", "bottleneck 52", "bottleneck 104"} {
		if !slices.Contains(got, want) {
			t.Errorf("got %q, want also %q", got, want)
		}
	}
}
