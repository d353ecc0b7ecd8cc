package dqn

import (
	"strings"
	"testing"
)

func TestNegativeCountersAreRefused(t *testing.T) {
	for name, p := range map[string]Progress{
		"episodes": {Episodes: -1}, "decisions": {Decisions: -1}, "updates": {Updates: -1}, "skipped": {Skipped: -1},
		"jobs": {Jobs: -1},
	} {
		if err := p.check(); err == nil || !strings.Contains(err.Error(), name+": got -1, want at least 0") {
			t.Errorf("%s: got %v, want an error that names it", name, err)
		}
	}
	if err := (&Progress{Episodes: 3}).check(); err != nil {
		t.Errorf("valid counters: got %v", err)
	}
}
