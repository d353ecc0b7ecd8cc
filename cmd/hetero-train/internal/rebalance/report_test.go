package rebalance

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/profiler/runs"
)

// The records must contain the text that explains why the estimate of a decision differs from the busy times.
func TestTheRecordSaysWhyFiguresDiffer(t *testing.T) {
	for _, want := range []string{"", "rank 0 is busy for 1.8 of 8.0 ms"} {
		d := balancer.Decision{Explanation: balancer.Unexplained(2)}
		d.Disagreement = want
		text, err := json.Marshal(decisionLine(7, "hybrid", &d))
		if err != nil {
			t.Fatal(err)
		}
		if read, ok := runs.ParseDecision(text); !ok || read.Differs != want {
			t.Errorf("got %q from %s, want %q", read.Differs, text, want)
		}
	}
}

// If the lost time was not measured, the records must contain null, and not 0.
func TestUnmeasuredWindowsHaveNoLostTime(t *testing.T) {
	text, err := json.Marshal(decisionLine(7, "none", &balancer.Decision{Explanation: balancer.Unexplained(2)}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"useful_seconds":null`, `"lost_seconds":{"communication":null,"data":null,"granularity":null,"imbalance":null,"noise":null,"pauses":null}`,
		`"equal_step_seconds":null`, `"noisy_rank":null`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("got %s, want %s", text, want)
		}
	}
}
