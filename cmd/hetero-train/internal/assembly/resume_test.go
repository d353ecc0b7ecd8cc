package assembly

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// Evaluations on the old data are not comparable with evaluations on the new data.
func TestAChangeOfDataForgetsEvaluations(t *testing.T) {
	r := New(nil, session.Options{})
	r.Data = &parts.Opened{Name: "cifar10"}
	for _, changed := range []bool{false, true} {
		state := checkpoint.State{Best: &checkpoint.Best{Value: 0.9}, Extra: map[string]json.RawMessage{DataKey: json.RawMessage(`{"name": "cifar10"}`), "train": json.RawMessage(`{"loss": 1, "early_stop": {"since": 7}}`)}}
		err := r.checkData(&state, changed)
		if err != nil || (state.Best == nil) != changed || strings.Contains(string(state.Extra["train"]), `"since":0`) != changed {
			t.Errorf("changed %v: got %v, best %v, %s", changed, err, state.Best, state.Extra["train"])
		}
	}
}
