package train

import (
	"slices"
	"sync"
	"testing"

	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// Options.Timed must get the times of a step that each rank itself measured. It must get them before the next step,
// evaluation or save.
func TestTimedHasTheTimesOfOneStep(t *testing.T) {
	for name, c := range map[string]struct {
		ranks  int
		change func(*Options)
	}{
		"one rank":           {1, func(o *Options) { o.SaveSteps = 2 }},
		"steps only":         {2, func(o *Options) { o.Eval = nil }},
		"saves, evaluations": {3, func(o *Options) { o.SaveSteps, o.CompareSteps = 2, 3 }},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			measured := make([]map[int64]replica.StepTimes, c.ranks) // by rank and step
			timed := make([]map[int64][]replica.StepTimes, c.ranks)
			change := func(rank int, o *Options, rec *recorder) {
				measured[rank], timed[rank] = map[int64]replica.StepTimes{}, map[int64][]replica.StepTimes{}
				rec.after = func(step int64) {
					mu.Lock()
					defer mu.Unlock()
					own := rec.steps[len(rec.steps)-1].Ranks[rank].Times
					measured[rank][step] = own
					if len(timed[rank]) < len(rec.steps)-1 {
						t.Errorf("rank %d: the times before step %d are unknown at its end", rank, step)
					}
				}
				o.Timed = func(times []replica.StepTimes) {
					mu.Lock()
					defer mu.Unlock()
					if len(rec.steps) > 0 {
						timed[rank][rec.steps[len(rec.steps)-1].Step] = slices.Clone(times)
					}
				}
				o.Observer = savingsOf{rec, func() {
					if len(timed[rank]) != len(rec.steps) {
						t.Errorf("rank %d: a save after %d steps, but the times of %d", rank, len(rec.steps),
							len(timed[rank]))
					}
				}}
				c.change(o)
			}
			for rank, s := range startRanks(t, c.ranks, change) {
				if s.err != nil {
					t.Fatalf("rank %d: %v", rank, s.err)
				}
			}
			for rank := range c.ranks {
				if len(timed[rank]) != testSteps {
					t.Errorf("rank %d: got the times of %d steps, want %d", rank, len(timed[rank]), testSteps)
				}
				for step, times := range timed[rank] {
					for other := range times {
						if got, want := times[other], measured[other][step]; got != want {
							t.Errorf("rank %d, step %d, times of rank %d: got %+v, want %+v", rank, step, other, got,
								want)
						}
					}
				}
			}
		})
	}
}

// savingsOf is an Observer that calls a function at each save.
type savingsOf struct {
	*recorder
	saving func()
}

func (o savingsOf) Saving() { o.saving() }
