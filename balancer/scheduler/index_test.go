package scheduler

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler/internal/limits"
)

// spanning contains speeds that are lower for gangs on several machines. Jobs of kind 1 run on several machines only.
type spanning struct{}

func (spanning) Alone(kind, typ, n int, spread bool) float64 {
	switch {
	case kind == 1 && !spread:
		return 0
	case spread:
		return float64(n) * 0.7
	}
	return float64(n * (2 - typ))
}
func (spanning) Shared(_, _, _, _ int) (float64, bool)          { return 0, false }
func (spanning) Mixed(int, []int, bool) (speed float64, _ bool) { return 0, false }

// The index must choose the same GPUs as State.Place, for demands with and without data structures. Answers that the
// index stores for larger demands must equal those of a search.
func TestIndexChoosesTheGPUsOfPlace(t *testing.T) {
	demands := limits.Demands
	t.Cleanup(func() { limits.Demands = demands })
	limits.Demands = 4
	random := rand.New(rand.NewPCG(7, 1))
	searched, refused := 0, 0
	for range 40 {
		c := &Cluster{Types: []GPUType{{Memory: 8}, {Memory: 8}}}
		for m := range 1 + random.IntN(90) {
			machine := Machine{CPUs: float64(4 + random.IntN(12)), Memory: float64(8 + random.IntN(8))}
			for range 1 + random.IntN(4) {
				machine.GPUs = append(machine.GPUs, len(c.GPUs))
				c.GPUs = append(c.GPUs, GPU{Type: random.IntN(2), Machine: m})
			}
			c.Machines = append(c.Machines, machine)
		}
		w := &Workload{Kinds: []Kind{{}, {}}}
		for range 150 {
			w.Jobs = append(w.Jobs, Job{Kind: random.IntN(2), Work: 1, GPUs: 1 + random.IntN(5),
				CPUs: float64(random.IntN(6)), Memory: float64(random.IntN(40)) / 8})
		}
		s := &State{Cluster: c, Workload: w, Speeds: spanning{}, Remaining: make([]float64, len(w.Jobs)),
			Up: make([]bool, len(c.GPUs)), OnGPU: make([][]int, len(c.GPUs))}
		for g := range c.GPUs {
			if s.Up[g] = random.IntN(9) > 0; random.IntN(3) == 0 {
				s.OnGPU[g] = []int{0}
			}
		}
		for m := range c.Machines {
			s.FreeCPUs = append(s.FreeCPUs, float64(random.IntN(1+int(c.Machines[m].CPUs))))
			s.FreeMem = append(s.FreeMem, c.Machines[m].Memory*random.Float64())
		}
		var p placer
		p.reset(c, w, spanning{})
		p.count(s)
		p.asked.begin()
		for job := range w.Jobs {
			if p.index.of(s, p.shapes.of[job]) == nil {
				searched++
			}
			fastest := 0.0
			for typ := range c.Types {
				want, speed, ok := s.Place(job, typ, nil)
				got, fast, fits := p.index.place(s, job, typ, nil)
				if fits != ok || ok && (fast != speed || !slices.Equal(got, want)) {
					t.Fatalf("job %+v on type %d: got GPUs %v at %v steps/s (%v), want %v at %v steps/s (%v)",
						w.Jobs[job], typ, got, fast, fits, want, speed, ok)
				}
				if ok {
					fastest = max(fastest, speed)
				}
			}
			if p.mixed(job) {
				continue
			}
			if _, known := p.asked.of(p.shapes.of[job]); known {
				refused++
			}
			if speed, ok := p.ask(s, &p.index, &p.asked, job); ok != (fastest > 0) || speed != fastest {
				t.Fatalf("job %+v: got the answer %v steps/s (%v), want %v steps/s", w.Jobs[job], speed, ok, fastest)
			}
			if rate := p.fastestRate(p.shapes.classOf(job)); rate < fastest || math.IsNaN(rate) {
				t.Fatalf("job %+v: got a bound of %v steps/s, want at least %v", w.Jobs[job], rate, fastest)
			}
		}
	}
	t.Logf("%d jobs without data structures, %d answers without a search", searched, refused)
	if searched < 500 || refused < 100 {
		t.Errorf("got %d jobs without data structures and %d answers without a search, want at least 500 and 100",
			searched, refused)
	}
}
