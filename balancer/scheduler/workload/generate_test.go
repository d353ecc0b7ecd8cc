package workload

import (
	"math"
	"reflect"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

func TestDefaultIsValid(t *testing.T) {
	s := Default()
	if err := s.Cluster.Check(); err != nil {
		t.Fatal(err)
	}
	w, err := Generate(s, Arrivals{Jobs: 2000, Load: 0.8, Seed: 3, Burst: 3, Surge: 4, SurgeFrom: 0.3, SurgeTo: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Check(); err != nil {
		t.Fatal(err)
	}
	for job := range w.Jobs {
		if err := scheduler.Holds(s.Cluster, w, s.Speeds, job); err != nil {
			t.Error(err)
		}
	}
	again, _ := Generate(s, Arrivals{Jobs: 2000, Load: 0.8, Seed: 3, Burst: 3, Surge: 4, SurgeFrom: 0.3, SurgeTo: 0.5})
	if !reflect.DeepEqual(w, again) {
		t.Error("equal arrivals gave other jobs")
	}
}

// The work that arrives per second must be Load times the capacity of the cluster, within the statistical error.
func TestLoad(t *testing.T) {
	s := Default()
	for _, a := range []Arrivals{{Jobs: 40000, Load: 0.5, Seed: 1}, {Jobs: 40000, Load: 1.5, Seed: 2, Burst: 5}} {
		w, err := Generate(s, a)
		if err != nil {
			t.Fatal(err)
		}
		gpuSeconds := 0.0
		for _, j := range w.Jobs {
			speed := 0.0
			for _, g := range s.Cluster.GPUs {
				speed += s.Speeds.Alone(j.Kind, g.Type, j.GPUs, false) / float64(len(s.Cluster.GPUs))
			}
			gpuSeconds += float64(j.GPUs) * j.Work / speed
		}
		got := gpuSeconds / (w.Jobs[len(w.Jobs)-1].Arrival * float64(len(s.Cluster.GPUs)))
		if math.Abs(got/a.Load-1) > 0.05 { // four standard errors with bursts of arrivals
			t.Errorf("load: got %v, want %v", got, a.Load)
		}
	}
}

func TestSurgeBringsLearningJobs(t *testing.T) {
	s := Default()
	w, err := Generate(s, Arrivals{Jobs: 10000, Load: 0.7, Seed: 5, Surge: 10, SurgeFrom: 0.4, SurgeTo: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	length := 10000 / (0.7 * 16 / s.demand())
	var inside, learning, before float64
	for _, j := range w.Jobs {
		switch {
		case j.Arrival >= 0.4*length && j.Arrival < 0.5*length:
			inside++
			if w.Kinds[j.Kind].Class == scheduler.Learning {
				learning++
			}
		case j.Arrival < 0.1*length:
			before++
		}
	}
	if inside < 4*before || learning/inside < 0.85 {
		t.Errorf("surge: got %v jobs with %v of machine learning, before %v jobs", inside, learning/inside, before)
	}
}

func TestArrivalsAreChecked(t *testing.T) {
	for _, a := range []Arrivals{{Load: 1}, {Jobs: 1}, {Jobs: 1, Load: math.NaN()}, {Jobs: 1, Load: 1, Burst: 0.5},
		{Jobs: 1, Load: 1, Surge: -1},
		{Jobs: 1, Load: 1, SurgeFrom: 0.6, SurgeTo: 0.5}} {
		if _, err := Generate(Default(), a); err == nil {
			t.Errorf("%+v: got no error", a)
		}
	}
}
