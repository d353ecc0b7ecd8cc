package schedule

import (
	"math"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

// The reason why a gang does not start on free GPUs must name only rules of its kind of job.
func TestObstacleNamesTheRulesOfTheKind(t *testing.T) {
	const alone, apart = "only within one machine", "only over several machines"
	for _, c := range []struct {
		packed, spread float64
		busy           []int // GPUs that run other jobs
		want           string
		no             []string
	}{
		{0, 2, []int{2, 3}, "2 free, but this kind of job runs only over several machines", []string{alone}},
		{2, 0, []int{0, 2}, "2 free, but this kind of job runs only within one machine", []string{apart}},
		{2, 2, nil, "4 free, but their machines have too few free CPU cores", []string{alone, apart}},
	} {
		cluster := workload.NewCluster([]scheduler.GPUType{{Name: "one"}},
			workload.MachineSpec{Count: 2, Type: 0, GPUs: 2, CPUs: 8, Memory: 8, Network: math.NaN()})
		speeds := &workload.Table{Kinds: []workload.Rates{{Types: [][]workload.Rate{
			{{GPUs: 1, Packed: 1}, {GPUs: 2, Packed: c.packed, Spread: c.spread}}}}}}
		if err := speeds.Build(1); err != nil {
			t.Fatal(err)
		}
		w := &scheduler.Workload{Kinds: []scheduler.Kind{{Name: "gang"}}, Jobs: []scheduler.Job{
			{GPUs: 1, Work: 1}, {GPUs: 1, Work: 1}, {Name: "gang", GPUs: 2, Work: 1}}}
		sim, err := simulate.New(cluster, w, speeds, simulate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for job, gpu := range c.busy {
			if err := sim.Apply(scheduler.Action{Verb: scheduler.Start, Job: job, GPUs: []int{gpu}}); err != nil {
				t.Fatal(err)
			}
		}
		s := sim.State()
		if c.busy == nil {
			s.FreeCPUs = []float64{-1, -1}
			w.Jobs[2].CPUs = 1
		}
		if _, _, ok := s.Place(2, 0, nil); ok {
			t.Fatalf("case %+v: the gang can start", c)
		}
		got := obstacle(s, 2, 0, pools(s)[0])
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("got %q, want a text that begins with %q", got, c.want)
		}
		for _, no := range c.no {
			if strings.Contains(got, no) {
				t.Errorf("got %q, which names a rule that the kind does not have: %q", got, no)
			}
		}
	}
}
