package observe

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// In a resumed run, the best evaluation is known before the first step.
func TestBestEvaluationOfEarlierProcesses(t *testing.T) {
	dir := t.TempDir()
	if best := BestEvaluation(dir, 50); best != nil {
		t.Errorf("without events: got %+v, want none", best)
	}
	events := `{"step":10,"evaluation":{"samples":8,"loss":2.5,"best":true}}
{"step":20,"evaluation":{"samples":8,"loss":1.5,"best":true}}
damaged
{"step":30,"evaluation":{"samples":8,"loss":1.75,"best":false}}
{"step":60,"evaluation":{"samples":8,"loss":1,"best":true}}
`
	if err := os.WriteFile(filepath.Join(dir, runtime.EventsFile), []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	if best := BestEvaluation(dir, 50); best == nil || best.Value != 1.5 || best.Step != 20 || best.Metric != "loss" {
		t.Errorf("got %+v, want 1.5 of step 20", best)
	}
}
