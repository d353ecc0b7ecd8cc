package hybrid

import (
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/internal/window"
)

func TestTheSlowestRankIsNamedByBothTimes(t *testing.T) {
	rank := func(seconds, error float64) balancer.RankView {
		var r balancer.RankView
		r.Seconds, r.Error = seconds, error
		return r
	}
	for name, c := range map[string]struct {
		a, b balancer.RankView
		want string
	}{
		"the same rank":   {rank(0.030, 0.001), rank(0.024, 0.001), ""},
		"nearly as slow":  {rank(0.024, 0.001), rank(0.026, 0.001), ""},
		"one slow step":   {rank(0.024, 0.001), rank(0.032, 0.001), ""},
		"clearly another": {rank(0.024, 0.001), rank(0.032, 0.001), " on the fitted curves (rank 1 by its mean over these steps)"},
	} {
		d, w := balancer.Decision{Shares: []int{8, 8}}, window.New(2, 10)
		d.Ranks = []balancer.RankView{c.a, c.b}
		for r, v := range d.Ranks {
			w.Compute[r] = slices.Repeat([]float64{v.Seconds}, 10)
		}
		if name == "one slow step" {
			w.Compute[1] = slices.Repeat([]float64{0.022}, 10)
			w.Compute[1][3] = 0.122
		}
		if got := otherwise(&d, 0, w); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
