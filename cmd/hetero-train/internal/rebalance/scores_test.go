package rebalance

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
)

func TestPoliciesThatNeedScoresWarnWithoutThem(t *testing.T) {
	for _, c := range []struct {
		policy string
		scores []float64
		want   string
	}{
		{"proportional", nil, "all shares stay equal"},
		{"dynamic", nil, "uses the same static score for all ranks"},
		{"proportional", []float64{1, 2}, ""},
		{"hybrid", nil, ""},
		{"none", nil, ""},
	} {
		var log bytes.Buffer
		b := &Balancer{cfg: &config.Config{}, scores: c.scores, missing: "profile.at_start is off",
			known: make([]knownRank, 2), options: balancer.Options{}}
		b.cfg.Balance.Policy, b.cfg.Balance.Options = c.policy, parts.BuiltinCatalog.PolicyOptions(c.policy)
		b.run = assembly.New(b.cfg, session.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		b.logShares([]int{1, 1})
		const warning = "has no compute scores (profile.at_start is off)"
		if warned := strings.Contains(log.String(), warning); warned != (c.want != "") ||
			!strings.Contains(log.String(), c.want) {
			t.Errorf("%s with scores %v: got %q, want a warning with %q", c.policy, c.scores, &log, c.want)
		}
	}
}

func TestAgeText(t *testing.T) {
	for age, want := range map[time.Duration]string{-time.Hour: "less than a minute",
		59 * time.Second: "less than a minute", 61 * time.Second: "1 minute", 119 * time.Minute: "119 minutes",
		26 * time.Hour: "26 hours", 71 * time.Hour: "2 days"} {
		if got := ageText(age); got != want {
			t.Errorf("%v: got %q, want %q", age, got, want)
		}
	}
}
