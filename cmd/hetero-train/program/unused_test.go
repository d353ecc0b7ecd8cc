package program

import (
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

func TestSettingsWithoutEffectAreWarnedOfOnce(t *testing.T) {
	p, dir := buildRanks(t), t.TempDir()
	e := finish(t, p.command(dir, "train.steps=2", "parallel.ranks=2", "optimizer.name=adamw", "optimizer.momentum=0.5",
		"balance.policy=none", "balance.max_slowdown_percent=5", "nccl.debug=INFO"), 0)
	e.check(t, exit.Done, "")
	for _, want := range []string{
		`optimizer.momentum = 0.5 (--set optimizer.momentum) has no effect: it needs optimizer.name = "sgd" (got "adamw")`,
		`balance.max_slowdown_percent = 5.0 (--set balance.max_slowdown_percent) has no effect: it needs balance.objective = "energy" or "cost" (got "time")`,
		`nccl.debug = "INFO" (--set nccl.debug) has no effect: it needs parallel.backend = "auto" or "nccl" (got "gloo")`,
	} {
		if n := strings.Count(e.stderr, want); n != 1 {
			t.Errorf("warned %d times, want once: %s\n%s", n, want, e.stderr)
		}
	}
	if n := strings.Count(e.stderr, "has no effect"); n != 3 {
		t.Errorf("got %d warnings, want 3:\n%s", n, e.stderr)
	}
}
