package schedule

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/compare"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/dqn"
)

// If a policy cannot run the jobs, a comparison must leave it out. Other errors must end the comparison.
func TestErrorsThatLeaveAPolicyOut(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&simulate.StalledError{Policy: "static", Queue: []int{0}}, true},
		{&simulate.EndlessError{Policy: "maxmin", Actions: 10_000_001}, true},
		{&dqn.SeveralTypesError{}, true},
		{&scheduler.TooLongError{}, true},
		{errors.New("the device failed"), false},
		{nil, false},
	} {
		err := c.err
		if err != nil {
			err = fmt.Errorf("seed 1: %w", err)
		}
		if got := leavesOut(err); got != c.want {
			t.Errorf("%T: got %v, want %v", c.err, got, c.want)
		}
	}
}

// Values that differ only by rounding errors must count as equal. If utilization is constant, there must be no
// regression on it.
func TestComparisonOfEqualPolicies(t *testing.T) {
	figures := func(factor float64) []compare.Figures {
		return []compare.Figures{{Completion: 100 * factor, Throughput: 30 / factor, Utilization: 0.9},
			{Completion: 200 * factor, Throughput: 20 / factor, Utilization: 0.9 * (1 + 1e-15)}}
	}
	for _, c := range []struct {
		factor  float64
		want    string
		without string
	}{
		{1 - 3e-15, "no policy has a higher HyperScore than fcfs", "regression"},
		{0.5, "completion time 50.0 % shorter, throughput 100.0 % higher, utilization equal", "regression"},
	} {
		s, err := compare.New("fcfs", []uint64{1, 2},
			[]compare.Runs{{Policy: "fcfs", Figures: figures(1)}, {Policy: "srf", Figures: figures(c.factor)}})
		if err != nil {
			t.Fatal(err)
		}
		if text := comparisonText(s); !strings.Contains(text, c.want) || strings.Contains(text, c.without) ||
			strings.Contains(text, "NaN") {
			t.Errorf("factor %v: got\n%s\nwant %q without %q", c.factor, text, c.want, c.without)
		}
	}
	if got := change(1-1e-15, "longer", "shorter"); got != "equal" {
		t.Errorf("a rounding error: got %q, want equal", got)
	}
}
