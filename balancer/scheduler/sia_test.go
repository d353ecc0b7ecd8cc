package scheduler

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// aged sets the arrival time of a running job and the time of its only start, in s.
func (s *State) aged(job int, at float64) *State {
	s.Workload.Jobs[job].Arrival = at
	return s.since(job, at)
}

// penalty sets the restart penalty of kind small, in s.
func (s *State) penalty(seconds float64) *State {
	s.Workload.Kinds[1].Load = seconds
	return s
}

// Job 0 of kind small runs on 2 fast GPUs, which are faster for it by 5 %. For job 1, they are faster by 100 %.
// The normalised goodputs on fast and slow GPUs are 2.105 and 2 for job 0, and 4 and 2 for job 1. The values are
// therefore 0.411, 0.393, 0.6 and 0.393.
// The jobs change places if the value that job 0 loses by its restart is less than 0.189.
func TestSiaWeighsRestarts(t *testing.T) {
	jobs := func() *State {
		return still(Job{Work: 9e3, GPUs: 2, Kind: 1}, Job{Work: 9e3, GPUs: 2}).run(0, 4, 0, 1)
	}
	stay := Action{Verb: Start, Job: 1, GPUs: []int{2, 3}}
	move := Action{Verb: Stop, Job: 0}
	for _, c := range []struct {
		name   string
		state  *State
		stops  int // earlier stops of job 0
		want   Action
		reason string
	}{
		{"a restart without cost", jobs(), 0, move, "moves to 2 x slow"},
		{"an old job", jobs().penalty(1000).aged(0, -9900), 0, move, "moves to 2 x slow"}, // r = 10/11
		// r = 1/2: the goodput on slow GPUs is 1, and the value is 0.1.
		{"a restart doubles the time", jobs().penalty(10000).aged(0, -9900), 0, stay,
			"gets 2 x slow; its normalised goodput is 2.00, its value 0.39"},
		{"a job that has just started", jobs().penalty(10001).aged(0, -9900), 0, move, "moves"},         // r = 1
		{"a job that was stopped often", jobs().penalty(1000).aged(0, -9900), 5, stay, "gets 2 x slow"}, // r = 5/11
		{"a restart without any progress", jobs().penalty(1000).aged(0, -9900), 11, stay, "gets 2 x slow"},
	} {
		p := reset(t, "sia", Options{Explain: true}, c.state).(*sia)
		p.stops[0] = c.stops
		got := p.Decide(c.state)
		if got.Verb != c.want.Verb || got.Job != c.want.Job || !slices.Equal(got.GPUs, c.want.GPUs) ||
			!strings.Contains(got.Reason, c.reason) {
			t.Errorf("%s: got %+v, want %+v with reason %q", c.name, got, c.want, c.reason)
		}
		if after := c.stops + int(got.Verb/Stop); p.stops[0] != after {
			t.Errorf("%s: got %d stops of job 0, want %d", c.name, p.stops[0], after)
		}
	}
	loads := jobs()
	loads.Running[0].Ready = 101
	if got := reset(t, "sia", Options{}, loads).Decide(loads); got.Verb != Start || got.Job != 1 {
		t.Errorf("job 0 loads its checkpoint: got %+v, want that it stays", got)
	}
	kept := jobs()
	if got := reset(t, "sia", Options{Keep: true}, kept).Decide(kept); got.Verb != Start || got.Job != 1 {
		t.Errorf("without stops: got %+v, want the start of job 1", got)
	}
}

// The policy must stop jobs only at the start of a round. GPUs that become free in a round must get the waiting job
// with the largest value.
func TestSiaRounds(t *testing.T) {
	s := still(Job{Work: 9e3, GPUs: 1}, Job{Work: 9e3, GPUs: 1}, Job{Work: 9e3, GPUs: 2, Kind: 1},
		Job{Work: 9e3, GPUs: 2}, Job{Work: 9e3, GPUs: 2, Kind: 1}, Job{Work: 9e3, GPUs: 2})
	s.run(0, 2, 0).run(1, 2, 1).run(2, 3.8, 2, 3)
	s.Queue = nil                   // jobs 3 to 5 arrive later
	s.Workload.Kinds[0].Save = 1e-9 // saves take almost no time, so only the rounds are events
	p := reset(t, "sia", Options{}, s).(*sia)
	// Job 2 is 5 % faster on fast GPUs, so the policy decides again at the next round.
	if got := p.Decide(s); got.Verb != Wait || got.Until != 160 {
		t.Fatalf("got %+v, want a wait until 160 s", got)
	}
	s.Queue = []int{3, 4}
	if got := p.at(s, 130); got.Verb != Wait || got.Until != 160 {
		t.Errorf("a job that arrives in a round: got %+v, want a wait until 160 s", got)
	}
	// Jobs 0 and 1 have ended. On the fast GPUs, job 3 has the value 0.6 and job 4 the value 0.41.
	s.Running = s.Running[2:]
	s.OnGPU[0], s.OnGPU[1] = nil, nil
	if got := p.at(s, 140); got.Verb != Start || got.Job != 3 || !slices.Equal(got.GPUs, []int{0, 1}) {
		t.Errorf("free GPUs in a round: got %+v, want the start of job 3", got)
	}
	s.run(3, 4, 0, 1)
	if got := p.at(s, 150); got.Verb != Wait || got.Until != 160 {
		t.Errorf("no free GPUs: got %+v, want a wait until 160 s", got)
	}
	// Two jobs with equal values do not change places.
	if got := p.at(s, 160); got.Verb != Wait || got.Until != 220 {
		t.Errorf("a round without a better allocation: got %+v, want a wait until 220 s", got)
	}
	s.Queue = nil
	// Job 2 has ended, and job 3 already has the fastest type.
	s.Running, s.OnGPU[2], s.OnGPU[3] = s.Running[1:], nil, nil
	if got := p.at(s, 230); got.Verb != Wait || got.Until != 0 {
		t.Errorf("nothing to improve: got %+v, want a wait until the next event", got)
	}
}

// If restarts take no time, the policy must not decide again before the next event.
func TestSiaWithoutRestartPenalty(t *testing.T) {
	s := still(Job{Work: 9e3, GPUs: 2, Kind: 1}, Job{Work: 9e3, GPUs: 2}).run(0, 3.8, 2, 3).run(1, 4, 0, 1)
	s.Workload.Kinds = s.Workload.Kinds[:3] // without kind loading
	p := reset(t, "sia", Options{}, s).(*sia)
	if got := p.at(s, 100); got.Verb != Wait || got.Until != 0 {
		t.Errorf("got %+v, want a wait until the next event", got)
	}
	s.Arrived++
	if got := p.at(s, 110); got.Verb != Wait || got.Until != 160 {
		t.Errorf("after an event in a round: got %+v, want a wait until 160 s", got)
	}
	if got := p.at(s, 160); got.Verb != Wait || got.Until != 0 {
		t.Errorf("after the next round: got %+v, want a wait until the next event", got)
	}
}

// at calls Decide at the time now.
func (p *sia) at(s *State, now float64) Action {
	s.Now = now
	return p.Decide(s)
}

// If some jobs of a group get GPUs, they must be the oldest ones, on the fastest of the types.
func TestSiaServesTheOldest(t *testing.T) {
	var jobs []Job
	for range 6 {
		jobs = append(jobs, Job{Work: 9e3, GPUs: 1})
	}
	s := still(jobs...)
	p := reset(t, "sia", Options{}, s)
	for job, gpu := range []int{0, 1, 2, 3} {
		a := p.Decide(s)
		if a.Verb != Start || a.Job != job || !slices.Equal(a.GPUs, []int{gpu}) {
			t.Fatalf("got %+v, want the start of job %d on GPU %d", a, job, gpu)
		}
		s.run(job, 1, gpu)
	}
	if a := p.Decide(s); a.Verb != Wait {
		t.Errorf("got %+v, want a wait", a)
	}
}

// Extremely large or small speeds, and jobs without any speed, must give finite values.
func TestSiaWithExtremeSpeeds(t *testing.T) {
	s := still(Job{Work: 10, GPUs: 1}, Job{Work: 10, GPUs: 1, Kind: 1}, Job{Work: 10, GPUs: 1, Kind: 2})
	s.Speeds = table{[][2]float64{{1.7e308, 1e-300}, {1e-6, 0}, {0, 1e8}}}
	p := reset(t, "sia", Options{}, s)
	want := map[int][]int{0: {0}, 1: {1}, 2: {2}}
	for range want {
		a := p.Decide(s)
		if a.Verb != Start || !slices.Equal(a.GPUs, want[a.Job]) {
			t.Fatalf("got %+v, want one of %v", a, want)
		}
		s.run(a.Job, 1, a.GPUs...)
	}
	if v := worth(0); v != 0 {
		t.Errorf("no goodput: got the value %v, want 0", v)
	}
	if v := worth(math.Inf(1)); v != siaIncentive {
		t.Errorf("an infinite goodput: got the value %v, want %v", v, siaIncentive)
	}
}

// After the stops of a round, the machines may still be unable to hold a job. The policy must then stop no jobs for
// this job, in this round or later.
func TestSiaStopsNoJobInVain(t *testing.T) {
	// GPUs 0 and 1 are fast, GPUs 2 to 5 are slow, and machines have 8 cores. Jobs 1 and 2 use the slow GPUs with 1
	// core for each. Job 0 needs 2 slow GPUs with 4 cores each, or 2 fast ones. For it, slow GPUs are twice as fast.
	busy := func(cpus float64) *State {
		s := still(Job{Work: 9e3, GPUs: 2, CPUs: 4}, Job{Work: 9e3, GPUs: 2, CPUs: cpus, Kind: 1},
			Job{Work: 9e3, GPUs: 2, CPUs: cpus, Kind: 1}, Job{Work: 9e3, GPUs: 2, CPUs: 1, Kind: 2}).sized(2, 4)
		s.Speeds = table{[][2]float64{{1, 2}, {2, 2}, {2, 0}, {2, 1}}}
		return s.run(1, 4, 2, 3).run(2, 4, 4, 5).run(3, 4, 0, 1)
	}
	for _, c := range []struct {
		name   string
		state  *State
		inVain bool
	}{
		{"jobs without CPU cores", busy(0), false},
		{"a neighbour with 1 core for each GPU", busy(1), true},
	} {
		p := reset(t, "sia", Options{Explain: true}, c.state).(*sia)
		for now := 100.0; now < 1000; now += siaRound {
			a := p.at(c.state, now)
			if stops := a.Verb == Stop; stops == c.inVain || stops && a.Job == 3 {
				t.Errorf("%s, %v s: got %+v, want a stop of job 1 or 2: %v", c.name, now, a, !c.inVain)
			}
			if !c.inVain {
				break
			}
		}
		if gaps := p.Gaps(); c.inVain && gaps.Problems < 30 {
			t.Errorf("%s: got %d integer programs in 15 rounds, want at least 2 in each", c.name, gaps.Problems)
		}
	}
	// If a job has no room, the policy leaves it out. Another job must still get the GPUs of job 1 or 2.
	s := busy(1)
	s.Workload.Jobs[0].CPUs = 1
	s.Workload.Jobs = append(s.Workload.Jobs, Job{Work: 9e3, GPUs: 2, CPUs: 4})
	s.Queue, s.Remaining, s.Arrived = append(s.Queue, 4), append(s.Remaining, 9e3), 5
	if a := reset(t, "sia", Options{}, s).Decide(s); a.Verb != Stop || a.Job == 3 {
		t.Errorf("another job has room: got %+v, want a stop of job 1 or 2", a)
	}
}

// A job that moves must get the GPUs of its move, even if saving its checkpoint takes longer than a round.
func TestSiaRemembersMoves(t *testing.T) {
	s := still(Job{Work: 9e3, GPUs: 2, Kind: 1}, Job{Work: 9e3, GPUs: 2}).run(0, 4, 0, 1)
	p := reset(t, "sia", Options{}, s).(*sia)
	if a := p.at(s, 100); a.Verb != Stop || a.Job != 0 {
		t.Fatalf("got %+v, want a stop of job 0", a)
	}
	s.Running[0].Leaves = 250
	for _, now := range []float64{100, 160, 220} {
		if a := p.at(s, now); a.Verb != Wait {
			t.Fatalf("%v s: got %+v, want a wait for job 0", now, a)
		}
	}
	s.Running, s.Queue = nil, []int{0, 1}
	for g := range s.OnGPU {
		s.OnGPU[g] = nil
	}
	if a := p.at(s, 250); a.Verb != Start || a.Job != 0 || !slices.Equal(a.GPUs, []int{2, 3}) {
		t.Errorf("got %+v, want job 0 on GPUs 2 and 3", a)
	}
}
