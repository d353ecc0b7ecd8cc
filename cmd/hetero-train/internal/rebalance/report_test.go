package rebalance

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
)

// Lost time that was not measured must be null in the records, not 0.
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
