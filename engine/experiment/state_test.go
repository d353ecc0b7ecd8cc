package experiment

import (
	"strings"
	"testing"
)

func TestOutcomesStateTheWayOn(t *testing.T) {
	for _, c := range []struct {
		result Result
		state  State
		says   string
	}{
		{Result{Steps: 20}, Finished, ""},
		{Result{Steps: 20, GaveUp: "no better loss"}, Finished, "no better loss"},
		{Result{Steps: 20, OutOfTime: true}, Stopped, "train.max_seconds"},
		{Result{Steps: 20, Exit: exitTerminated}, Stopped, "after step 20 and its state was saved"},
		{Result{Exit: exitTerminated}, Stopped, "before its first step"},
		{Result{Exit: exitInterrupted}, Stopped, "before its first step"},
		{Result{Steps: 20, Exit: exitUnsaved}, Stopped, "nothing was saved"},
		{Result{Steps: 20, Exit: 4, Error: "the loss is NaN"}, Failed, "exit code 4: the loss is NaN"},
	} {
		state, why := c.result.Outcome()
		if state != c.state || !strings.Contains(why, c.says) || c.says == "" && why != "" {
			t.Errorf("%+v: got %s, %q, want %s, %q", c.result, state, why, c.state, c.says)
		}
	}
}
