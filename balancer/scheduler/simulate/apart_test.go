package simulate_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// gangOfTwo returns machines of two GPUs each, and jobs of two GPUs. packed and spread are their speeds within one
// machine and over several machines, in steps/s.
func gangOfTwo(t *testing.T, machines int, packed, spread float64) (*workload.Setup, *scheduler.Workload) {
	t.Helper()
	setup := &workload.Setup{
		Cluster: workload.NewCluster([]scheduler.GPUType{{Name: "one"}},
			workload.MachineSpec{Count: machines, Type: 0, GPUs: 2, CPUs: 8, Memory: 8, Network: math.NaN()}),
		Speeds: &workload.Table{Kinds: []workload.Rates{{Types: [][]workload.Rate{
			{{GPUs: 1, Packed: 1}, {GPUs: 2, Packed: packed, Spread: spread}}}}}},
	}
	if err := setup.Speeds.Build(1); err != nil {
		t.Fatal(err)
	}
	return setup, &scheduler.Workload{Kinds: []scheduler.Kind{{Name: "gang"}}, Jobs: []scheduler.Job{
		{Name: "first", GPUs: 2, Work: 10}, {Name: "single", GPUs: 1, Work: 30}, {Name: "second", GPUs: 2, Work: 10}}}
}

// A gang that runs only over several machines must start, although one machine has enough free GPUs. The gang must also
// start if it first waits for a GPU of another machine.
func TestAGangThatMustSpanMachinesStarts(t *testing.T) {
	setup, w := gangOfTwo(t, 2, 0, 2)
	for _, name := range append(scheduler.Names(), "limited", "limited, static bound") {
		named, bound, _ := strings.Cut(strings.Replace(name, "limited", "gang,limited", 1), ",")
		p, err := scheduler.New(named, scheduler.Options{})
		if err != nil {
			t.Fatal(err)
		}
		switch bound {
		case "limited":
			p = scheduler.Limit(p, scheduler.DefaultBound, scheduler.Options{})
		case "limited, static bound":
			p = scheduler.Limit(p, scheduler.StaticBound, scheduler.Options{})
		}
		r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{Record: true})
		if err != nil {
			t.Errorf("policy %s: %v", name, err)
			continue
		}
		for _, v := range r.Segments {
			if len(v.GPUs) > 1 && !setup.Cluster.Spread(v.GPUs) {
				t.Errorf("policy %s: got job %d on GPUs %v, want GPUs of both machines", name, v.Job, v.GPUs)
			}
		}
	}
}

// A gang that runs only over several machines must not share GPUs of one machine. After the end of the other job, it
// would have no speed, and would never end.
func TestAGangSharesOnlyGPUsOnWhichItRunsAlone(t *testing.T) {
	setup, w := gangOfTwo(t, 2, 0, 2)
	setup.Speeds.Kinds = append(setup.Speeds.Kinds,
		workload.Rates{Types: [][]workload.Rate{{{GPUs: 2, Packed: 1, Spread: 0.1}}}})
	setup.Speeds.Pairs = []workload.Pair{{Kind: 0, Other: 1, GPUs: 2, Speed: 1.5, OtherSpeed: 0.9}}
	if err := setup.Speeds.Build(1); err != nil {
		t.Fatal(err)
	}
	w.Kinds = append(w.Kinds, scheduler.Kind{Name: "packed"})
	w.Jobs = []scheduler.Job{{Name: "short", Kind: 1, GPUs: 2, Work: 10}, {Name: "long", Kind: 1, GPUs: 2, Work: 100},
		{Name: "gang", GPUs: 2, Work: 60, Arrival: 1}}
	p, err := scheduler.New("gang", scheduler.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Jobs[2].Start; got != 100 {
		t.Errorf("got a start at %v s, want 100 s, when both machines have free GPUs", got)
	}
}

// If no placement can satisfy a gang's rules, New must refuse the gang before the run, and the error must name the
// rule.
func TestAGangWithoutMachinesIsRefused(t *testing.T) {
	for _, c := range []struct {
		name           string
		machines       int
		packed, spread float64
		change         func(*scheduler.Job)
		want           string // "": the job is accepted
	}{
		{"only over several machines, one machine", 1, 0, 2, nil,
			`kind "gang" runs on 2 GPUs of type "one" only over several machines (it has spread_speed, but no speed), but one machine has all that can hold it`},
		{"only over several machines, two machines", 2, 0, 2, nil, ""},
		{"only within one machine, one machine", 1, 2, 0, nil, ""},
		{"only within one machine, with CPU cores for one GPU", 4, 2, 0,
			func(j *scheduler.Job) { j.CPUs = 5 },
			`kind "gang" runs on 2 GPUs of type "one" only within one machine (it has no spread_speed), but a machine has at most 1 GPU that can hold it; it needs 5 CPU cores`},
		{"only within one machine, with memory for one GPU", 4, 2, 0,
			func(j *scheduler.Job) { j.Memory = 5 },
			`only within one machine (it has no spread_speed), but a machine has at most 1 GPU that can hold it`},
		{"over several machines, with CPU cores for one GPU of each", 2, 0, 2,
			func(j *scheduler.Job) { j.CPUs = 5 }, ""},
		{"no speed", 2, 0, 0, nil, `kind "gang" has no speed on 2 GPUs of any type`},
		{"too many CPU cores", 2, 2, 2, func(j *scheduler.Job) { j.CPUs = 9 },
			"it needs 2 GPUs, but no GPU of one type can hold it; it needs 9 CPU cores"},
	} {
		setup, w := gangOfTwo(t, c.machines, c.packed, c.spread)
		w.Jobs = w.Jobs[:1]
		if c.change != nil {
			c.change(&w.Jobs[0])
		}
		p, err := scheduler.New("fcfs", scheduler.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{})
		var refused *scheduler.UnplaceableError
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: got %v, want that the job runs", c.name, err)
		case c.want != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got the error %v, want one that contains %q", c.name, err, c.want)
		}
	}
}

// Machine 0 has two GPUs of type "a", machine 1 two of type "b". A gang that has no speed within one machine runs on
// one GPU of each, although the first two GPUs are of one machine.
func TestAMixedSetLeavesAGPUToTheNextMachine(t *testing.T) {
	curve := divide.Curve{{Samples: 1, Seconds: 0.5}, {Samples: 8, Seconds: 1}}
	rates := []workload.Rate{{GPUs: 1, Packed: 1}, {GPUs: 2, Spread: 1.5}}
	setup := &workload.Setup{
		Cluster: workload.NewCluster([]scheduler.GPUType{{Name: "a"}, {Name: "b"}},
			workload.MachineSpec{Count: 1, Type: 0, GPUs: 2, CPUs: 8, Memory: 8, Network: math.NaN()},
			workload.MachineSpec{Count: 1, Type: 1, GPUs: 2, CPUs: 8, Memory: 8, Network: math.NaN()}),
		Speeds: &workload.Table{Kinds: []workload.Rates{{Batch: 4, Curves: []divide.Curve{curve, curve},
			Types: [][]workload.Rate{rates, rates}}}},
	}
	if err := setup.Speeds.Build(2); err != nil {
		t.Fatal(err)
	}
	w := &scheduler.Workload{Kinds: []scheduler.Kind{{Name: "gang"}}, Jobs: []scheduler.Job{
		{Name: "first", GPUs: 2, Work: 10}, {Name: "second", GPUs: 2, Work: 10}}}
	for _, name := range scheduler.Names() {
		p, err := scheduler.New(name, scheduler.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := simulate.Run(p, setup.Cluster, w, setup.Speeds, simulate.Options{Record: true})
		if err != nil {
			t.Errorf("policy %s: %v", name, err)
			continue
		}
		for _, v := range r.Segments {
			if len(v.GPUs) != 2 || !setup.Cluster.Spread(v.GPUs) {
				t.Errorf("policy %s: got job %d on GPUs %v, want one GPU of each machine", name, v.Job, v.GPUs)
			}
		}
	}
}
