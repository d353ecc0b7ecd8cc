package scheduler

import "testing"

// Policy las must decide again when the running job has had enough service for the waiting job to stop it.
func TestLASWaitsForTheSecondQueue(t *testing.T) {
	s := still(Job{Work: 9e9, GPUs: 4, Kind: 2}, Job{Work: 9, GPUs: 1}).run(0, 1, 0, 1, 2, 3)
	p := reset(t, "las", Options{}, s)
	want := 50 + lasService/4.0 // the job has had its GPUs since 50 s
	if a := p.Decide(s); a.Verb != Wait || a.Until != want {
		t.Fatalf("got %+v, want a wait until %v s", a, want)
	}
	if a := p.Decide(s.at(want)); a.Verb != Stop || a.Job != 0 {
		t.Errorf("at %v s: got %+v, want that job 0 stops", want, a)
	}
}
