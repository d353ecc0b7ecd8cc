package schedule

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/dqn"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
)

// A comparison leaves a policy out if the policy cannot run the jobs. Other errors end the comparison.
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
