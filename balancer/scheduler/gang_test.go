package scheduler

import (
	"runtime"
	"testing"
)

// unshared is a table with jobs that never share GPUs. It counts the questions whether two jobs can share one.
type unshared struct{ asked *int }

func (unshared) Alone(_, typ, n int, _ bool) float64 { return float64(n * (2 - typ)) }
func (u unshared) Shared(_, _, _, _ int) (float64, bool) {
	*u.asked++
	return 0, false
}
func (unshared) Mixed(int, []int, bool) (float64, bool) { return 0, false }

// As in `schedule advise`, each job has its own kind and there is no journal. A decision must not allocate memory for
// pairs of a running job and a kind.
func TestGangAllocatesNoPairsOfJobsThatCannotShare(t *testing.T) {
	const running, pending = 1500, 1500
	jobs := make([]Job, running+pending)
	for i := range jobs {
		jobs[i] = Job{Kind: i, Work: float64(1000 + i), GPUs: 1}
	}
	s := still(jobs...).sized(running, 0)
	asked := 0
	s.Speeds, s.Workload.Kinds = unshared{&asked}, make([]Kind, len(jobs))
	for i := range running {
		s.run(i, 2, i)
	}
	p, err := New("gang", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Reset(s.Cluster, s.Workload, s.Speeds); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	a := p.Decide(s)
	runtime.ReadMemStats(&after)
	if a.Verb != Wait {
		t.Fatalf("got the action %+v, want that all jobs wait, because no GPU is free", a)
	}
	if asked < running {
		t.Fatalf("got %d questions whether jobs can share GPUs, want at least %d: one for each running job", asked,
			running)
	}
	got := after.TotalAlloc - before.TotalAlloc
	t.Logf("one decision allocated %d bytes", got)
	if most := uint64(8 << 20); got > most {
		t.Errorf("got %d bytes allocated by one decision, want at most %d", got, most)
	}
}

// `schedule advise` puts an urgent job first in the queue, even if it arrived last. The urgent job must not hide
// another job that has waited for longer than its bound.
func TestBoundSeesOverdueJobsBehindYoungOnes(t *testing.T) {
	s := still(Job{Work: 9, GPUs: 1, Arrival: 95}, Job{Work: 9, GPUs: 2, Arrival: 1},
		Job{Work: 9, GPUs: 2, Arrival: 80})
	inner, err := New("fcfs", Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := Limit(inner, Bound{Seconds: 50}, Options{})
	if err := p.Reset(s.Cluster, s.Workload, s.Speeds); err != nil {
		t.Fatal(err)
	}
	if a := p.Decide(s); a.Verb != Start || a.Job != 1 {
		t.Errorf("got %+v, want a start of job 1, which waits for 99 s with a bound of 50 s", a)
	}
	s.run(1, 2, 0, 1).down(2, 3)
	if a := p.Decide(s); a.Verb != Wait || a.Until != 130 {
		t.Errorf("got %+v, want a wait until 130 s, when job 2 becomes overdue, before job 0 at 145 s", a)
	}
}
