package scheduler_test

import (
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

func TestLeftPredictsWhenAJobFreesItsGPUs(t *testing.T) {
	setup := workload.Default()
	w := &scheduler.Workload{Kinds: setup.Kinds, Jobs: []scheduler.Job{{GPUs: 1}}}
	s := &scheduler.State{Now: 100, Cluster: setup.Cluster, Workload: w, Speeds: setup.Speeds}
	speed := setup.Speeds.Alone(0, 0, 1, false)
	never := math.Inf(1)
	for _, c := range []struct {
		name string
		r    scheduler.Running
		want float64 // seconds
	}{
		{"computes", scheduler.Running{Speed: 4, Remaining: 200, Leaves: never}, 50},
		{"is slower than alone", scheduler.Running{Speed: 1, Remaining: 200, Leaves: never}, 200},
		{"loads for 30 s", scheduler.Running{Remaining: 60 * speed, Ready: 130, Leaves: never}, 90},
		{"saves for 7 s", scheduler.Running{Speed: 4, Remaining: 200, Leaves: 107}, 7},
	} {
		c.r.GPUs, c.r.Partner = []int{0}, -1
		if got := s.Left(&c.r); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("a job that %s: got %v s, want %v s", c.name, got, c.want)
		}
	}
}

func TestMultiples(t *testing.T) {
	for _, c := range []struct {
		have, need float64
		want       int
	}{{7, 2, 3}, {6, 2, 3}, {0.1 + 0.2 + 0.6999999999, 0.5, 2}, {1, 2, 0}, {0, 0, 1 << 30}, {1e20, 1, 1 << 30}} {
		if got := scheduler.Multiples(c.have, c.need); got != c.want {
			t.Errorf("%v in %v: got %d, want %d", c.need, c.have, got, c.want)
		}
	}
}
