package observe

import (
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/engine/train"
)

func TestTheLastStepHasARecord(t *testing.T) {
	for _, c := range []struct {
		interval, total, steps int64
		want                   []int64
	}{{7, 16, 16, []int64{7, 14, 16}}, {7, 14, 14, []int64{7, 14}}, {7, 0, 16, []int64{7, 14}}} {
		// If c.total is 0, the number of steps is unknown.
		o := &Records{interval: c.interval}
		var got []int64
		for step := range c.steps {
			if o.due(&train.StepRecord{Step: step + 1, Total: c.total}) {
				got = append(got, step+1)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("interval %d, %d steps: got records of steps %v, want %v", c.interval, c.total, got, c.want)
		}
	}
}
