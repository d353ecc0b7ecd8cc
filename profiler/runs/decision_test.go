package runs

import (
	"fmt"
	"testing"
)

func TestImpossibleDecisionsAreDamagedLines(t *testing.T) {
	for fields, want := range map[string]bool{
		`"step_seconds":1,"equal_step_seconds":1.5,"equal_step_seconds_low":1.4,"equal_step_seconds_high":1.6`: true,
		`"step_seconds":null,"share_of_oracle":null,"lost_seconds":{"noise":null}`:                             true,
		`"share_of_oracle":0.9,"share_of_oracle_low":0.8,"share_of_oracle_high":1,"imbalance":0`:               true,
		`"shares":[0,48],"next":[20,28]`:  true,
		`"shares":[10,10],"next":[20,28]`: true, // the global batch of the run has changed
		`"step_seconds":-1`:               false,
		`"equal_step_seconds":-1`:         false,
		`"equal_step_seconds":2,"equal_step_seconds_low":9,"equal_step_seconds_high":1`: false,
		`"share_of_oracle":3.5`:                            false,
		`"share_of_oracle":0.5,"share_of_oracle_low":-0.1`: false,
		`"imbalance":1.1`:                                  false,
		`"lost_seconds":{"noise":-0.1}`:                    false,
		`"shares":[-4,52]`:                                 false,
		`"next":[1e12,52]`:                                 false,
		`"ranks":[{"seconds":-1}]`:                         false,
	} {
		line := fmt.Appendf(nil, `{"step":5,"policy":"hybrid",%s}`, fields)
		if d, ok := ParseDecision(line); ok != want {
			t.Errorf("%s: got %+v, %v, want %v", line, d, ok, want)
		}
	}
}

func TestARunNamesImpossibleDecisions(t *testing.T) {
	dir := t.TempDir()
	f := newFakeRun(t, dir, "a", 2)
	f.steps(1, 20)
	f.write("logs/balance.jsonl", `{"step":5,"shares":[40,24],"step_seconds":1,"share_of_oracle":0.5}`+"\n"+
		`{"step":10,"shares":[32,32],"step_seconds":1,"share_of_oracle":3.5}`+"\n")
	v := open(t, dir, "a").View()
	if v.Damaged["balance.jsonl"] != "1 damaged line ignored" || v.Decision == nil || *v.Decision.OfOracle != 0.5 {
		t.Errorf("got damage %v and %+v, want one damaged line and the decision before", v.Damaged, v.Decision)
	}
}
