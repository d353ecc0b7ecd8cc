package scheduler

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// table contains speeds of kinds on one GPU of type 0 and 1. Gangs are faster in proportion to their GPUs. Gangs on
// several types run at the speed of their slowest GPU.
type table struct{ speed [][2]float64 }

func (s table) Alone(kind, typ, n int, _ bool) float64 { return s.speed[kind][typ] * float64(n) }
func (s table) Shared(kind, _, typ, n int) (float64, bool) {
	return 0.9 * s.speed[kind][typ] * float64(n), kind == 1
}
func (s table) Mixed(kind int, counts []int, _ bool) (float64, bool) {
	return min(s.speed[kind][0], s.speed[kind][1]) * float64(counts[0]+counts[1]), kind == 2
}

// still returns a state at 100 s in which all jobs wait. The first machine has two GPUs of type 0, the second has two
// GPUs of type 1.
func still(jobs ...Job) *State {
	c := &Cluster{Types: []GPUType{{Name: "fast", Memory: 8}, {Name: "slow", Memory: 8}},
		Machines: []Machine{{Name: "a", CPUs: 8, Memory: 8, GPUs: []int{0, 1}},
			{Name: "b", CPUs: 8, Memory: 8, GPUs: []int{2, 3}}},
		GPUs: []GPU{{Type: 0}, {Type: 0}, {Type: 1, Machine: 1}, {Type: 1, Machine: 1}}}
	w := &Workload{Kinds: []Kind{{Name: "even"}, {Name: "small", GPUMemory: 1}, {Name: "divisible"},
		{Name: "loading", Load: 1}}, Jobs: jobs}
	s := &State{Now: 100, Cluster: c, Workload: w, Speeds: table{[][2]float64{{2, 1}, {2, 1.9}, {2, 1.5}, {2, 1}}},
		Up:    []bool{true, true, true, true},
		OnGPU: make([][]int, 4), FreeCPUs: []float64{8, 8}, FreeMem: []float64{8, 8}, Arrived: len(jobs)}
	for i := range jobs {
		s.Queue = append(s.Queue, i)
		s.Remaining = append(s.Remaining, jobs[i].Work)
	}
	return s
}

// sized replaces the machines by machines with this number of fast and slow GPUs.
func (s *State) sized(fast, slow int) *State {
	c := s.Cluster
	c.GPUs, c.Machines[0].GPUs, c.Machines[1].GPUs = nil, nil, nil
	for g := range fast + slow {
		m := 0
		if g >= fast {
			m = 1
		}
		c.GPUs = append(c.GPUs, GPU{Type: m, Machine: m})
		c.Machines[m].GPUs = append(c.Machines[m].GPUs, g)
	}
	s.Up, s.OnGPU = slices.Repeat([]bool{true}, len(c.GPUs)), make([][]int, len(c.GPUs))
	return s
}

// run moves a job from the queue to GPUs.
func (s *State) run(job int, speed float64, gpus ...int) *State {
	s.Queue = slices.DeleteFunc(s.Queue, func(q int) bool { return q == job })
	s.Running = append(s.Running, Running{Job: job, GPUs: gpus, Since: 50, Ready: 50, Speed: speed,
		Remaining: s.Remaining[job], Leaves: math.Inf(1), Partner: -1})
	for _, g := range gpus {
		s.OnGPU[g] = append(s.OnGPU[g], job)
		s.FreeCPUs[s.Cluster.GPUs[g].Machine] -= s.Workload.Jobs[job].CPUs
	}
	return s
}

// since sets the time, in s, at which a running job got its GPUs.
func (s *State) since(job int, at float64) *State {
	for i := range s.Running {
		if s.Running[i].Job == job {
			s.Running[i].Since, s.Running[i].Ready = at, at
		}
	}
	return s
}

// did sets the number of steps that a job has already computed.
func (s *State) did(job int, steps float64) *State {
	s.Remaining[job] -= steps
	return s
}

// down makes GPUs unavailable.
func (s *State) down(gpus ...int) *State {
	for _, g := range gpus {
		s.Up[g] = false
	}
	return s
}

// at sets the current time of the state.
func (s *State) at(now float64) *State {
	s.Now = now
	return s
}

func TestDecisions(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy string
		state  *State
		want   Action
		reason string // part of the reason of the decision
	}{
		{"a running job without progress", "gang", still(Job{Work: 9, GPUs: 2}, Job{Work: 12, GPUs: 3},
			Job{Work: 1, GPUs: 4}, Job{Work: 3, GPUs: 1}).sized(4, 2).run(0, 0, 0, 4).run(1, 6, 1, 2, 3),
			Action{Verb: Start, Job: 3, GPUs: []int{5}}, ""},
		{"the first job", "fcfs", still(Job{Work: 9, GPUs: 1}, Job{Work: 1, GPUs: 1}),
			Action{Verb: Start, Job: 0, GPUs: []int{0}}, "first of 2"},
		{"the first job blocks", "fcfs", still(Job{Work: 9, GPUs: 2}, Job{Work: 9, GPUs: 2}, Job{Work: 9, GPUs: 2},
			Job{Work: 1, GPUs: 1}).run(0, 4, 0, 1).run(3, 1, 2), Action{}, ""},
		{"a type that is too small is passed over", "fcfs", still(Job{Work: 1, GPUs: 1}, Job{Work: 9, GPUs: 2}).run(0,
			2, 0), Action{Verb: Start, Job: 1, GPUs: []int{2, 3}}, "slow"},

		{"the first job, on its fastest GPU", "easy", still(Job{Work: 9, GPUs: 1}, Job{Work: 1, GPUs: 1}),
			Action{Verb: Start, Job: 0, GPUs: []int{0}}, "first of 2"},
		// Both fast GPUs become free in 4 s, and both slow ones in 10 s. The first job has a reservation on the fast
		// GPUs.
		{"a job ends before the reservation", "easy",
			still(Job{Work: 8, GPUs: 1}, Job{Work: 10, GPUs: 1}, Job{Work: 9, GPUs: 2}, Job{Work: 4, GPUs: 1}).run(0, 2,
				0).run(1, 1, 2), Action{Verb: Start, Job: 3, GPUs: []int{1}},
			"can start in 4 s, the first of 2 in the queue; this job ends before that, on 1 x fast"},
		{"a long job uses other GPUs", "easy",
			still(Job{Work: 8, GPUs: 1}, Job{Work: 10, GPUs: 1}, Job{Work: 9, GPUs: 2}, Job{Work: 400, GPUs: 1}).run(0,
				2, 0).run(1, 1, 2), Action{Verb: Start, Job: 3, GPUs: []int{3}},
			"this job uses other GPUs, on 1 x slow"},
		{"a job that would delay the first one waits", "easy", still(Job{Work: 80, GPUs: 2}, Job{Work: 2, GPUs: 1},
			Job{Work: 9, GPUs: 2}, Job{Work: 400, GPUs: 1}).run(0, 4, 0, 1).run(1, 1, 2), Action{}, ""},
		{"a short job fits into the gap", "easy",
			still(Job{Work: 80, GPUs: 2}, Job{Work: 2, GPUs: 1}, Job{Work: 9, GPUs: 2}, Job{Work: 2, GPUs: 1}).run(0, 4,
				0, 1).run(1, 1, 2), Action{Verb: Start, Job: 3, GPUs: []int{3}},
			"can start in 2 s, the first of 2 in the queue; this job ends before that"},

		// The resumed job would end too late: it needs 2 s of work and 1 s of loading, and the reservation starts in 2
		// s.
		{"a job that loads is late", "easy", still(Job{Work: 80, GPUs: 2}, Job{Work: 2, GPUs: 1}, Job{Work: 9, GPUs: 2},
			Job{Work: 3, GPUs: 1, Kind: 3}).run(0, 4, 0, 1).run(1, 1, 2).did(3, 1), Action{}, ""},
		// The first job needs both slow GPUs and all 8 cores of their machine, which job 1 frees in 2 s.
		{"cores are reserved", "easy", still(Job{Work: 80, GPUs: 2}, Job{Work: 2, GPUs: 1, CPUs: 2}, Job{
			Work: 9, GPUs: 1, CPUs: 8}, Job{Work: 400, GPUs: 1, CPUs: 1}).run(0, 4, 0, 1).run(1, 1, 2), Action{}, ""},
		{"no GPUs ever", "easy", still(Job{Work: 9, GPUs: 2}, Job{Work: 2, GPUs: 1}).down(0, 2),
			Action{Verb: Start, Job: 1, GPUs: []int{1}},
			`job "" cannot start on the available GPUs, the first of 2 in the queue`},

		{"another type waits", "static",
			still(Job{Work: 90, GPUs: 2}, Job{Work: 90, GPUs: 2}, Job{Work: 9, GPUs: 1, Kind: 1}).run(0, 4, 0, 1),
			Action{Verb: Start, Job: 2, GPUs: []int{2}}, "small is assigned to 1 x slow"},

		{"the highest priority", "rule",
			still(Job{Work: 9, GPUs: 1, Arrival: 100}, Job{Work: 9, GPUs: 1, Arrival: 100, Priority: 0.5}),
			Action{Verb: Start, Job: 1, GPUs: []int{0}}, "priority 0.50"},
		{"age exceeds priority", "rule", still(Job{Work: 9, GPUs: 1}, Job{Work: 9, GPUs: 1, Arrival: 100, Priority: 1}),
			Action{Verb: Start, Job: 0, GPUs: []int{0}}, "waited 100 s"},
		{"small jobs pass a young gang", "rule", still(Job{Work: 4000, GPUs: 4, Kind: 2, Arrival: 99, Priority: 1},
			Job{Work: 9, GPUs: 1}, Job{Work: 9, GPUs: 1, Arrival: 99}).run(1, 2, 0),
			Action{Verb: Start, Job: 2, GPUs: []int{1}}, "score"},
		{"an overdue gang blocks", "rule", still(Job{Work: 9, GPUs: 4, Kind: 2}, Job{Work: 9, GPUs: 1},
			Job{Work: 9, GPUs: 1, Arrival: 99}).run(1, 2, 0), Action{}, ""},

		{"the shortest job on its fastest GPU", "srf", still(Job{Work: 9, GPUs: 1}, Job{Work: 8, GPUs: 1}),
			Action{Verb: Start, Job: 1, GPUs: []int{0}}, "4 s on 1 x fast"},
		{"the shortest that fits", "srf", still(Job{Work: 90, GPUs: 2}, Job{Work: 3, GPUs: 1}, Job{Work: 2, GPUs: 2},
			Job{Work: 9, GPUs: 1}).run(1, 2, 0).run(3, 1, 2), Action{}, ""},

		{"the shortest job", "srpt", still(Job{Work: 9, GPUs: 1}, Job{Work: 8, GPUs: 1}),
			Action{Verb: Start, Job: 1, GPUs: []int{0}}, "4 s on 1 x fast"},
		// Job 0 runs for 100 s on both slow GPUs, job 1 for 5 s on both fast ones. Job 2 needs 10 s on fast GPUs.
		{"a longer job is stopped", "srpt",
			still(Job{Work: 200, GPUs: 2}, Job{Work: 20, GPUs: 2}, Job{Work: 40, GPUs: 2}).run(0, 2, 2, 3).run(1, 4, 0,
				1), Action{Verb: Stop, Job: 0}, "has a shorter remaining time, 10 s, and no free GPUs"},
		// Job 1 needs 6 s on all GPUs, which run at the speed of the slow ones. Job 0 runs for 50 s.
		{"a job for several types has a running time", "srpt",
			still(Job{Work: 100, GPUs: 1}, Job{Work: 36, GPUs: 4, Kind: 2}).run(0, 2, 0), Action{Verb: Stop, Job: 0},
			"has a shorter remaining time, 6 s"},
		{"no job is stopped for a longer one", "srpt", still(Job{Work: 200, GPUs: 2}, Job{Work: 20, GPUs: 2},
			Job{Work: 400, GPUs: 2}).run(0, 2, 2, 3).run(1, 4, 0, 1), Action{}, ""},

		{"the oldest job", "las", still(Job{Work: 9, GPUs: 1}, Job{Work: 8, GPUs: 1}),
			Action{Verb: Start, Job: 0, GPUs: []int{0}},
			"the oldest job of the first queue that fits: it has had 0 GPU seconds; it starts on 1 x fast"},
		// Jobs 0 and 1 have run for 50 s, job 2 for 2,000 s on two GPUs.
		{"a job with much service is stopped", "las",
			still(Job{Work: 9e9, GPUs: 1}, Job{Work: 9e9, GPUs: 1}, Job{Work: 9e9, GPUs: 2}, Job{Work: 40, GPUs: 2}).
				run(0, 2, 0).run(1, 2, 1).run(2, 2, 2, 3).since(2, -1900), Action{Verb: Stop, Job: 2},
			`it has had 4000 GPU seconds, and job "", which has had 0, finds no free GPUs`},
		{"jobs with little service stay", "las", still(Job{Work: 9e9, GPUs: 1}, Job{Work: 9e9, GPUs: 1},
			Job{Work: 9e9, GPUs: 2}, Job{Work: 40, GPUs: 2}).run(0, 2, 0).run(1, 2, 1).run(2, 2, 2, 3), Action{}, ""},

		// On slow GPUs, job 1 is slower by a small factor, and job 0 by a factor of 2. The sum of their completion
		// times is least if job 0 gets the remaining fast GPU.
		{"the least sum", "allox", still(Job{Work: 9, GPUs: 1, Kind: 1}, Job{Work: 9, GPUs: 1}, Job{Work: 900, GPUs: 1},
			Job{Work: 900, GPUs: 1}).run(2, 2, 0).run(3, 1, 2), Action{Verb: Start, Job: 1, GPUs: []int{1}},
			"it is job 1 of 2 on its type; it starts on 1 x fast"},
		{"a job waits for a faster type", "allox", still(Job{Work: 8, GPUs: 2}, Job{Work: 40, GPUs: 2}).run(0, 4, 0, 1),
			Action{}, ""},
		{"a gang that does not fit lets others pass", "allox",
			still(Job{Work: 4, GPUs: 1}, Job{Work: 8, GPUs: 2}, Job{Work: 9e3, GPUs: 1, Kind: 1},
				Job{Work: 900, GPUs: 1}).run(0, 2, 0).run(2, 1.9, 2), Action{Verb: Start, Job: 3, GPUs: []int{1}},
			"it is job 2 of 2"},
		{"a job for several types", "allox", still(Job{Work: 9, GPUs: 4, Kind: 2}),
			Action{Verb: Start, Job: 0, GPUs: []int{0, 1, 2, 3}}, "no type alone can hold the job"},

		{"the largest sum of values", "sia", still(Job{Work: 4000, GPUs: 2, Kind: 1}, Job{Work: 4000, GPUs: 2}),
			Action{Verb: Start, Job: 0, GPUs: []int{2, 3}}, "its normalised goodput is 2.00, its value 0.39"},
		{"two small jobs are worth more than a large one", "sia", still(Job{Work: 4000, GPUs: 2},
			Job{Work: 4000, GPUs: 1}, Job{Work: 4000, GPUs: 1}).run(0, 4, 0, 1).down(2, 3),
			Action{Verb: Stop, Job: 0}, "if other jobs get its GPUs"},
		{"a job for several types", "sia", still(Job{Work: 9, GPUs: 4, Kind: 2}),
			Action{Verb: Start, Job: 0, GPUs: []int{0, 1, 2, 3}}, "no type alone can hold the job"},

		{"slow GPUs are worse than to wait", "gang", still(Job{Work: 20, GPUs: 2}, Job{Work: 40, GPUs: 2}).run(0, 4, 0,
			1), Action{}, ""},
		{"slow GPUs are better than to wait", "gang", still(Job{Work: 100, GPUs: 2}, Job{Work: 40, GPUs: 2}).run(0, 4,
			0, 1), Action{Verb: Start, Job: 1, GPUs: []int{2, 3}}, "2 steps/s, end in 20 s"},
		{"a mixed set is priced", "gang",
			still(Job{Work: 400, GPUs: 1}, Job{Work: 400, GPUs: 1}, Job{Work: 30, GPUs: 2, Kind: 2}).run(0, 2, 0).run(1,
				1, 2), Action{Verb: Start, Job: 2, GPUs: []int{1, 3}}, "1 x fast and 1 x slow"},
		{"jobs share if both gain", "gang", still(Job{Work: 400, GPUs: 2, Kind: 1}, Job{Work: 400, GPUs: 2},
			Job{Work: 20, GPUs: 2, Kind: 1}).run(0, 4, 0, 1).run(1, 2, 2, 3),
			Action{Verb: Start, Job: 2, GPUs: []int{0, 1}}, "together with job 0"},
		{"a job moves to free fast GPUs", "gang", still(Job{Work: 400, GPUs: 2}).run(0, 2, 2, 3),
			Action{Verb: Stop, Job: 0}, "100 s earlier"},
		{"a job that started just now stays", "gang", still(Job{Work: 400, GPUs: 2}).run(0, 2, 2, 3).at(50), Action{},
			""},
		{"a job that nearly ends stays", "gang", still(Job{Work: 400, GPUs: 2, Kind: 1}).run(0, 3.8, 2, 3), Action{},
			""},

		{"a job for several types", "fcfs", still(Job{Work: 9, GPUs: 4, Kind: 2}),
			Action{Verb: Start, Job: 0, GPUs: []int{0, 1, 2, 3}},
			"no type alone can hold the job, so it gets free GPUs of several types: 2 x fast and 2 x slow"},
		{"a job for several types", "static", still(Job{Work: 9, GPUs: 4, Kind: 2}),
			Action{Verb: Start, Job: 0, GPUs: []int{0, 1, 2, 3}},
			"no type alone can hold the job, so it gets free GPUs of several types: 2 x fast and 2 x slow"},
		{"a job for several types", "rule", still(Job{Work: 9, GPUs: 4, Kind: 2}),
			Action{Verb: Start, Job: 0, GPUs: []int{0, 1, 2, 3}},
			"no type alone can hold the job, so it gets free GPUs of several types: 2 x fast and 2 x slow"},
		{"a job for several types", "maxmin", still(Job{Work: 9, GPUs: 4, Kind: 2}),
			Action{Verb: Start, Job: 0, GPUs: []int{0, 1, 2, 3}},
			"no type alone can hold the job, so it gets free GPUs of several types: 2 x fast and 2 x slow"},
		{"the type with the greater advantage", "maxmin", still(Job{Work: 4000, GPUs: 2},
			Job{Work: 4000, GPUs: 2, Kind: 1}), Action{Verb: Start, Job: 0, GPUs: []int{0, 1}}, "fair fraction"},
	} {
		got := reset(t, c.policy, Options{Explain: true}, c.state).Decide(c.state)
		if got.Verb != c.want.Verb || got.Job != c.want.Job || !slices.Equal(got.GPUs, c.want.GPUs) ||
			!strings.Contains(got.Reason, c.reason) || got.Verb != Wait && got.Reason == "" {
			t.Errorf("%s: %s: got %+v, want %+v with reason %q", c.policy, c.name, got, c.want, c.reason)
		}
	}
}

// A job that has waited for longer than its bound must start first, or get a reservation that no other start delays.
func TestOverdueJobs(t *testing.T) {
	for _, c := range []struct {
		name   string
		state  *State
		want   Action
		reason string // part of the reason of the decision
	}{
		// Jobs of 9 steps run for 4.5 s on a fast GPU, which gives them a bound of 59 s. Job 1 arrived 50 s ago.
		{"before the bound, the other policy decides",
			still(Job{Work: 9, GPUs: 1, Arrival: 42}, Job{Work: 8, GPUs: 1, Arrival: 50}),
			Action{Verb: Start, Job: 1, GPUs: []int{0}}, "the shortest remaining time"},
		{"the next bound", still(Job{Work: 400, GPUs: 4, Kind: 2}, Job{Work: 8, GPUs: 1, Arrival: 50}).run(0, 1, 0, 1,
			2, 3), Action{}, ""},
		{"a guessed time does not count", still(Job{Work: 9, GPUs: 1, Arrival: 42, Guessed: true},
			Job{Work: 8, GPUs: 1, Arrival: 50}), Action{Verb: Start, Job: 0, GPUs: []int{0}}, "its bound is 50 s"},
		{"an overdue job starts", still(Job{Work: 9, GPUs: 1, Arrival: 40}, Job{Work: 8, GPUs: 1, Arrival: 50}),
			Action{Verb: Start, Job: 0, GPUs: []int{0}},
			"the job arrived 60 s ago, and its bound is 59 s; it starts on 1 x fast"},
		{"the job whose bound ended first", still(Job{Work: 9, GPUs: 1, Arrival: 30},
			Job{Work: 8, GPUs: 1, Arrival: 20}), Action{Verb: Start, Job: 1, GPUs: []int{0}}, "arrived 80 s ago"},
		// The slow GPUs become free in 2 s, and are reserved for job 2. Job 3 would delay it on GPU 3; job 4 ends in
		// time.
		{"a reservation", still(Job{Work: 80, GPUs: 2}, Job{Work: 2, GPUs: 1}, Job{Work: 9, GPUs: 2},
			Job{Work: 400, GPUs: 1, Arrival: 99}).run(0, 4, 0, 1).run(1, 1, 2), Action{}, ""},
		{"a short job in front of a reservation",
			still(Job{Work: 80, GPUs: 2}, Job{Work: 2, GPUs: 1}, Job{Work: 9, GPUs: 2, Name: "long"},
				Job{Work: 400, GPUs: 1, Arrival: 98}, Job{Work: 2, GPUs: 1, Arrival: 99}).run(0, 4, 0, 1).run(1, 1, 2),
			Action{Verb: Start, Job: 4, GPUs: []int{3}},
			`job "long" can start in 2 s, and its bound has ended; this job ends in 2 s on 1 x slow`},
		// The fast GPUs become free in 4 s, and are reserved. Both other jobs may use GPU 3: the overdue one comes
		// first.
		{"overdue jobs come before others",
			still(Job{Work: 16, GPUs: 2}, Job{Work: 90, GPUs: 1}, Job{Work: 9, GPUs: 2, Name: "long", Arrival: -2000},
				Job{Work: 300, GPUs: 1, Arrival: -900}, Job{Work: 8, GPUs: 1, Arrival: 99}).run(0, 4, 0, 1).run(1, 1,
				2),
			Action{Verb: Start, Job: 3, GPUs: []int{3}}, `; job "long" can start in 4 s, and this job uses other GPUs`},
	} {
		inner, err := New("srf", Options{Explain: true})
		if err != nil {
			t.Fatal(err)
		}
		p := Limit(inner, Bound{Factor: 2, Seconds: 50}, Options{Explain: true})
		if err := p.Reset(c.state.Cluster, c.state.Workload, c.state.Speeds); err != nil {
			t.Fatal(err)
		}
		got := p.Decide(c.state)
		if next := 50 + 50 + 2*4.0; c.name == "the next bound" && got.Until != next {
			t.Errorf("got the next decision at %v s, want %v s, when the bound of job 1 ends", got.Until, next)
		}
		if got.Verb != c.want.Verb || got.Job != c.want.Job || !slices.Equal(got.GPUs, c.want.GPUs) ||
			!strings.Contains(got.Reason, c.reason) {
			t.Errorf("%s: got %+v, want %+v with reason %q", c.name, got, c.want, c.reason)
		}
	}
}

// If more jobs wait than gang plans for, the shortest of the other jobs must get GPUs that the plan leaves free. On
// clusters of more than gangDepth GPUs, gang must plan for more jobs as long as GPUs stay free.
func TestGangFillsIdleGPUs(t *testing.T) {
	// With this work, job i ends earlier on 2 fast GPUs, even after all shorter jobs, than on a slow GPU.
	double := func(i int) float64 { return math.Ldexp(4, i) }
	equal := func(int) float64 { return 1 }
	for _, c := range []struct {
		name    string
		fast    int // number of fast GPUs; two of them run a job of 0.5 s
		slow    int // number of slow GPUs
		waiting int
		gpus    int // number of GPUs of each waiting job
		work    func(i int) float64
		speed   float64 // steps/s on a slow GPU; fast GPUs: 2
		short   bool
		want    Action
		left    int // free GPUs that the plan does not reserve
		reason  string
	}{
		{"the plan has all jobs", 2, 1, gangDepth, 1, double, 1, false, Action{}, 1, ""},
		{"the plan is full", 2, 1, gangDepth + 1, 1, double, 1, false, Action{Verb: Start, Job: 2, GPUs: []int{2}}, 1,
			"more jobs wait than the plan has, and 1 x slow is idle"},
		{"slow GPUs end after the plan", 2, 1, gangDepth + 1, 1, double, 1e-30, false, Action{}, 1, ""},
		{"the short plan starts no other job", 2, 1, gangDepth + 1, 1, double, 1, true, Action{}, 1, ""},

		// On a fast GPU, job i would end after 0.5 s * (2 + i/2). From i = 78 on, it ends earlier on a slow GPU, after
		// 20 s.
		{"a long plan", 2, 80, 79, 1, equal, 0.05, false, Action{Verb: Start, Job: 80, GPUs: []int{2}}, 80,
			"it finishes first on 1 x slow"},
		{"a long plan in which all jobs wait", 2, 80, 78, 1, equal, 0.05, false, Action{}, 80, ""},
		{"a long plan has as many jobs as the cluster has GPUs", 2, 76, 79, 1, equal, 0.05, false,
			Action{Verb: Start, Job: 2, GPUs: []int{2}}, 76, "more jobs wait than the plan has, and 1 x slow is idle"},
		{"a short plan", 2, 80, 79, 1, equal, 0.05, true, Action{}, 80, ""},

		// The first job reserves the free fast GPU and a busy one, so the plan leaves one free GPU less.
		{"a gang reserves a free GPU", 3, 3, gangDepth + 1, 2, double, 1, false, Action{
			Verb: Start, Job: 2, GPUs: []int{3, 4}}, 3, "more jobs wait than the plan has, and 2 x slow are idle"},
		{"a gang leaves too few GPUs", 3, 1, gangDepth + 1, 2, double, 1, false, Action{}, 1, ""},
		{"no GPU is left", 3, 0, gangDepth + 1, 2, double, 1, false, Action{}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			jobs := []Job{{Work: 1, GPUs: 1}, {Work: 1, GPUs: 1}}
			for i := range c.waiting {
				jobs = append(jobs, Job{Work: c.work(i), GPUs: c.gpus})
			}
			s := still(jobs...).sized(c.fast, c.slow).run(0, 2, 0).run(1, 2, 1)
			s.Speeds = table{[][2]float64{{2, c.speed}}}
			p := reset(t, "gang", Options{Explain: true, ShortPlan: c.short}, s)
			got := p.Decide(s)
			if got.Verb != c.want.Verb || got.Job != c.want.Job || !slices.Equal(got.GPUs, c.want.GPUs) ||
				!strings.Contains(got.Reason, c.reason) {
				t.Errorf("got %+v, want %+v with reason %q", got, c.want, c.reason)
			}
			if left := p.(*gang).left; left != c.left {
				t.Errorf("got %d free GPUs that the plan does not reserve, want %d", left, c.left)
			}
		})
	}
}

// Behind a full plan, a job that needs GPUs of several types must not take GPUs that the plan has reserved.
func TestGangFillsWithoutReservedGPUs(t *testing.T) {
	jobs := []Job{{Work: 1, GPUs: 1}, {Work: 1, GPUs: 1}}
	for i := range gangDepth {
		jobs = append(jobs, Job{Work: math.Ldexp(4, i), GPUs: 2})
	}
	// This job of kind divisible is not in the plan. On the reserved GPU and the 3 slow ones, it would end before the
	// planned jobs.
	jobs = append(jobs, Job{Work: math.Ldexp(4, gangDepth), GPUs: 4, Kind: 2})
	s := still(jobs...).sized(3, 3).run(0, 2, 0).run(1, 2, 1)
	s.Speeds = table{[][2]float64{{2, 1e-30}, {2, 1}, {2, 1.5}}}
	p := reset(t, "gang", Options{}, s)
	if !p.(*gang).mixed(len(jobs) - 1) {
		t.Fatal("got a job that fits on GPUs of one type")
	}
	if got := p.Decide(s); got.Verb != Wait {
		t.Errorf("got %+v, want no action", got)
	}
}

// reset returns a policy that is initialized for a state.
func reset(t *testing.T, name string, o Options, s *State) Policy {
	t.Helper()
	p, err := New(name, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Reset(s.Cluster, s.Workload, s.Speeds); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestUnknownPolicy(t *testing.T) {
	if _, err := New("best", Options{}); err == nil || !strings.Contains(err.Error(), "gang") {
		t.Errorf("got %v, want an error that names the policies", err)
	}
}

func TestChecksNameAllFaults(t *testing.T) {
	s := still(Job{Name: "a", Work: 1, GPUs: 1}, Job{Name: "b", Work: -1, GPUs: 0, Priority: 2, Arrival: -3, Kind: 7,
		CPUs: math.NaN()})
	err := s.Workload.Check()
	for _, part := range []string{`job 1 ("b")`, "got kind 7", "got 0 GPUs", "got -3 s", "got -1 steps",
		"CPUs: got NaN", "priority: got 2", "order of arrival"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want a fault with %q", err, part)
		}
	}
	c := *s.Cluster
	c.GPUs = append([]GPU(nil), c.GPUs...)
	c.GPUs[1].Type, c.GPUs[2].Machine, c.GPUs[3].Utilization = 5, 0, 1.5
	c.Machines = append([]Machine(nil), c.Machines...)
	c.Machines[1].CPUs = -1
	err = c.Check()
	for _, part := range []string{"got type 5", "whose list of GPUs does not contain it", "utilization: got 1.5",
		"CPUs: got -1", "network: got 0 bytes/s, want a finite number above 0"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want a fault with %q", err, part)
		}
	}
}

// Policies that decide in rounds must refuse jobs that would run for too many rounds.
func TestRoundsRefuseLongJobs(t *testing.T) {
	for _, c := range []struct {
		name  string
		job   Job
		speed float64 // of kind 0 on the fast type, in steps/s
		want  string  // part of the error of policy maxmin; "": none
		sia   string  // part of the error of policy sia; "": none
	}{
		{"the longest job of sia", Job{Name: "a", Work: 1.5e8, GPUs: 1}, 1, "", ""},
		{"the longest job", Job{Name: "a", Work: 1e9, GPUs: 1}, 1, "",
			"running time of 1e+09 s on its fastest GPUs, want at most 1.5e+08 s, because the policy decides every 60 s"},
		{"a larger work", Job{Name: "a", Work: 1e12, GPUs: 1}, 1,
			`job 0 ("a"): got a running time of 1e+12 s on its fastest GPUs, want at most 1e+09 s, because the policy decides every 360 s`,
			"want at most 1.5e+08 s"},
		{"a tiny speed", Job{Name: "a", Work: 5, GPUs: 2}, 1e-300,
			"check the work of the job and the speeds of its kind", "running time of"},
		{"a slow mixed set", Job{Name: "a", Work: 1e10, GPUs: 4}, 2, "running time of 1.25e+09 s",
			"running time of 1.25e+09 s"},
		// The policies accept this job; the simulator refuses it.
		{"no speed", Job{Name: "a", Work: 1, GPUs: 1}, 0, "", ""},
		{"a late arrival", Job{Name: "a", Work: 1, GPUs: 1, Arrival: 1e16}, 1,
			"arrival: got 1e+16 s, want at most 1e+15 s", "arrival: got 1e+16 s, want at most 1e+15 s"},
	} {
		s := still(c.job)
		s.Speeds = table{[][2]float64{{c.speed, c.speed / 2}}}
		for policy, want := range map[string]string{"maxmin": c.want, "sia": c.sia} {
			p, err := New(policy, Options{})
			if err != nil {
				t.Fatal(err)
			}
			err = p.Reset(s.Cluster, s.Workload, s.Speeds)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %s: got %v, want an error with %q", policy, c.name, err, want)
			}
			var long *TooLongError
			if err != nil && !errors.As(err, &long) {
				t.Errorf("%s: %s: got %T, want a *TooLongError", policy, c.name, err)
			}
		}
	}
}

// If speeds differ by a factor of 1e300, the allocation must be finite, and each job must get a fraction of the time,
// and GPUs.
func TestMaxminWithSpeedsOfDifferentSize(t *testing.T) {
	s := still(Job{Work: 10, GPUs: 1}, Job{Work: 10, GPUs: 1, Kind: 1}, Job{Work: 10, GPUs: 2, Kind: 2})
	s.Speeds = table{[][2]float64{{1.7e308, 1e-300}, {1e-6, 1e-6}, {1e-300, 1e8}}}
	p := &maxmin{placer: placer{explain: true}}
	if err := p.Reset(s.Cluster, s.Workload, s.Speeds); err != nil {
		t.Fatal(err)
	}
	want := map[int][]int{0: {0}, 1: {1}, 2: {2, 3}}
	for range want {
		a := p.Decide(s)
		if a.Verb != Start || !slices.Equal(a.GPUs, want[a.Job]) {
			t.Fatalf("got %+v, want one of %v", a, want)
		}
		s.run(a.Job, 1, a.GPUs...)
	}
	for job := range want {
		if sum := p.x[2*job] + p.x[2*job+1]; !(sum > 0 && sum <= 1+1e-9) {
			t.Errorf("job %d: got fractions %v, want a sum above 0, at most 1", job, p.x[2*job:2*job+2])
		}
	}
}
