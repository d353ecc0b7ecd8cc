package hyper

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// table contains speeds by kind and type.
type table [][]float64

func (t table) Alone(kind, gpuType, n int, spread bool) float64 {
	return t[kind][gpuType] * float64(n)
}
func (t table) Shared(kind, other, gpuType, n int) (float64, bool) { return 0, false }
func (t table) Mixed(kind int, counts []int, spread bool) (float64, bool) {
	return 0, false
}

// unequal returns a cluster with two types of GPUs, and two kinds of jobs. Each kind runs well on one of the types.
func unequal() (*scheduler.Cluster, *scheduler.Workload, table) {
	c := &scheduler.Cluster{Types: []scheduler.GPUType{
		{Name: "Volta", Memory: 16 << 30, Bandwidth: 900e9, Compute: 15e12},
		{Name: "Radeon", Memory: 8 << 30, Bandwidth: 480e9, Compute: math.NaN()},
	}}
	c.Machines = []scheduler.Machine{{Name: "a", CPUs: 32, Memory: 256 << 30, Network: 1e9, GPUs: []int{0, 1}},
		{Name: "b", CPUs: 32, Memory: 256 << 30, Network: 1e9, GPUs: []int{2, 3}}}
	for i := range 4 {
		c.GPUs = append(c.GPUs, scheduler.GPU{Name: string(rune('a' + i)), Type: i / 2, Machine: i / 2,
			Utilization: math.NaN(), Temperature: math.NaN()})
	}
	w := &scheduler.Workload{Kinds: []scheduler.Kind{{Name: "ResNet", Class: scheduler.Learning},
		{Name: "fluid", Class: scheduler.Simulation}}}
	for i := range 40 {
		w.Jobs = append(w.Jobs, scheduler.Job{Name: "job", Kind: i % 2, Work: 100, GPUs: 1, CPUs: float64(1 + i%4),
			Memory: 4 << 30, Priority: float64(i%5) / 4})
	}
	return c, w, table{{10, 2}, {3, 4}}
}

func state(c *scheduler.Cluster, w *scheduler.Workload, s scheduler.Speeds) *scheduler.State {
	st := &scheduler.State{Cluster: c, Workload: w, Speeds: s, OnGPU: make([][]int, len(c.GPUs)),
		Remaining: make([]float64, len(w.Jobs))}
	for i := range w.Jobs {
		st.Remaining[i] = w.Jobs[i].Work
	}
	return st
}

func affinity(t testing.TB, o Options) *Affinity {
	t.Helper()
	a, err := NewAffinity(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// play runs jobs 0 to n-1, one at a time, on random GPUs, and passes all states to a.Watch.
func play(a *Affinity, n int) *scheduler.State {
	c, w, speeds := unequal()
	s := state(c, w, speeds)
	a.Reset(c, w)
	rng := rand.New(rand.NewPCG(3, 4))
	for job := range n {
		gpu := rng.IntN(len(c.GPUs))
		speed := speeds.Alone(w.Jobs[job].Kind, c.GPUs[gpu].Type, 1, false)
		s.Running = append(s.Running[:0], scheduler.Running{Job: job, GPUs: []int{gpu}, Since: s.Now, Speed: speed,
			Remaining: 100, Partner: -1})
		s.OnGPU[gpu] = []int{job}
		a.Watch(s)
		s.Now += 50 / speed
		a.Watch(s) // the job has not ended, so no placement has
		s.Now += 50 / speed
		s.Running, s.OnGPU[gpu], s.Remaining[job] = s.Running[:0], nil, 0
		a.Watch(s)
	}
	return s
}

func TestScoresPreferTheGPUsOnWhichSimilarJobsRanWell(t *testing.T) {
	a := affinity(t, Options{Seed: 5})
	s := play(a, 30)
	if got := len(a.Placements()); got != 30 {
		t.Errorf("got %d placements, want 30", got)
	}
	var scores [4]float64
	for job := 30; job < 40; job++ { // jobs that never ran
		for gpu := range scores {
			scores[gpu] = a.Score(s, job, gpu)
		}
		if s.Workload.Jobs[job].Kind == 0 { // ResNet: well on Volta, poorly on Radeon
			if !(scores[0] > 0.1 && scores[2] < -0.1) {
				t.Errorf(
					"job %d of kind ResNet: scores: got %v, want the first two above 0.1 and the others below -0.1",
					job, scores)
			}
		} else if !(scores[2] > 0.1) { // fluid: well on both
			t.Errorf("job %d of kind fluid: score of Radeon: got %v, want above 0.1", job, scores[2])
		}
		if scores[0] != scores[1] || scores[2] != scores[3] {
			t.Errorf("job %d: scores of equal GPUs: got %v, want equal ones", job, scores)
		}
	}
}

func TestScoresAreZeroWithoutExperience(t *testing.T) {
	a := affinity(t, Options{})
	c, w, speeds := unequal()
	a.Reset(c, w)
	s := state(c, w, speeds)
	if got := a.Score(s, 0, 0); got != 0 {
		t.Errorf("score without experience: got %v, want 0", got)
	}
}

func TestAModelWithoutExperienceIsNeutral(t *testing.T) {
	a := affinity(t, Options{})
	s := play(a, 30)
	c := *s.Cluster
	c.Types = append(c.Types[:2:2], scheduler.GPUType{Name: "Ampere", Memory: 16 << 30, Bandwidth: 900e9,
		Compute: 15e12})
	c.GPUs = append(c.GPUs[:4:4], scheduler.GPU{Type: 2, Utilization: math.NaN()})
	a.Reset(&c, s.Workload)
	s.Cluster, s.OnGPU = &c, make([][]int, len(c.GPUs))
	for job := range s.Workload.Jobs { // the tolerance is five standard deviations of unrelated vectors
		if got := math.Abs(a.Score(s, job, 4)); got > 5/math.Sqrt(Dimension) {
			t.Errorf("job %d on a model without placements: got a score of %v, want about 0", job, got)
		}
	}
}

// observe records a placement directly, without a simulated run.
func observe(a *Affinity, p *Placement) { a.add(a.jobID(&p.Job), a.gpuID(&p.GPU), p) }

func TestUtilizationIsPartOfThePlacement(t *testing.T) {
	a := affinity(t, Options{})
	job := JobFacts{Kind: "ResNet", Class: "learning", Priority: 0.5, GPUs: 1, CPUs: 4, Memory: 1 << 33, Network: 0}
	gpu := GPUFacts{Model: "Volta", Memory: 1 << 34, Bandwidth: math.NaN(), Compute: math.NaN()}
	for range 20 { // the job runs well alone, and poorly next to another job
		gpu.Utilization = 0
		observe(a, &Placement{job, gpu, 1})
		gpu.Utilization = 1
		observe(a, &Placement{job, gpu, 0.4})
	}
	a.refresh()
	gpu.Utilization = 0
	free := a.score(a.jobID(&job), a.gpuID(&gpu))
	gpu.Utilization = 1
	busy := a.score(a.jobID(&job), a.gpuID(&gpu))
	if !(free > 0.1 && busy < -0.1) {
		t.Errorf("scores of a free and of a busy GPU: got %v and %v, want one above 0.1 and one below -0.1", free, busy)
	}
}

func TestEfficiencyIsWorkDividedByTheFastestAlone(t *testing.T) {
	a := affinity(t, Options{})
	play(a, 30)
	for _, p := range a.Placements() {
		want := map[string]float64{"ResNet Volta": 1, "ResNet Radeon": 0.2, "fluid Volta": 0.75,
			"fluid Radeon": 1}[p.Job.Kind+" "+p.GPU.Model]
		if math.Abs(p.Efficiency-want) > 1e-9 {
			t.Errorf("%s on %s: got %v, want %v", p.Job.Kind, p.GPU.Model, p.Efficiency, want)
		}
	}
}

// If Watch first sees a job that already runs, the job's work and time must count from that call on.
func TestEfficiencyOfAJobThatWasSeenLate(t *testing.T) {
	a := affinity(t, Options{})
	c, w, speeds := unequal()
	s := state(c, w, speeds)
	a.Reset(c, w)
	s.Running = []scheduler.Running{{Job: 0, GPUs: []int{0}, Since: 0, Speed: 10, Remaining: 40, Partner: -1}}
	s.OnGPU[0], s.Now, s.Remaining[0] = []int{0}, 6, 40
	a.Watch(s)
	s.Running, s.OnGPU[0], s.Now, s.Remaining[0] = nil, nil, 10, 0
	a.Watch(s)
	if got := a.Placements(); len(got) != 1 || math.Abs(got[0].Efficiency-1) > 1e-9 {
		t.Errorf("got %+v, want one placement with efficiency 1", got)
	}
}

func TestRecordsAnswerQueries(t *testing.T) {
	s := space(t, Dimension)
	e, err := s.NewEncoder()
	if err != nil {
		t.Fatal(err)
	}
	models := []string{"V100", "T4", "Radeon", "P100", "K80"}
	record := s.New()
	for i := range 50 {
		g := GPUFacts{Model: models[i%5], Memory: 16 << 30, Bandwidth: 900e9, Compute: math.NaN(),
			Utilization: float64(i%17) / 16}
		e.GPU(record, &g)
		if name, similarity := e.Model(record); name != g.Model || similarity < 0.2 {
			t.Errorf("model of %+v: got %s with similarity %v", g, name, similarity)
		}
		if x, _ := e.Utilization(record); math.Abs(x-g.Utilization) > 2.5/16 {
			// 2 levels are at least 3 standard deviations of the noise.
			t.Errorf("utilization of %+v: got %v", g, x)
		}
		j := JobFacts{Kind: "kind " + models[i%5], Class: "learning", Priority: float64(i%9) / 8, GPUs: 4, CPUs: 8,
			Memory: math.NaN(), Network: 0}
		e.Job(record, &j)
		if name, _ := e.Kind(record); name != j.Kind {
			t.Errorf("kind of %+v: got %s", j, name)
		}
		if x, _ := e.Priority(record); math.Abs(x-j.Priority) > 2.5/16 {
			t.Errorf("priority of %+v: got %v", j, x)
		}
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	a := affinity(t, Options{})
	s := play(a, 40)
	if n := testing.AllocsPerRun(100, func() {
		a.refresh()
		for gpu := range s.Cluster.GPUs {
			a.Score(s, 3, gpu)
		}
		a.Watch(s)
	}); n != 0 {
		t.Errorf("scores of a job: got %v allocations, want 0", n)
	}
	v, b := a.space.New(), a.space.NewBundle()
	m := a.encoder.Models()
	var matches [3]Match
	b.Add(a.jobRecords.vectors[0])
	b.Add(a.jobRecords.vectors[0])
	b.Clear()
	if n := testing.AllocsPerRun(100, func() {
		b.Clear()
		b.Add(a.jobRecords.vectors[0])
		b.Add(a.jobRecords.vectors[1])
		b.Majority(v)
		m.Nearest(v, matches[:])
		b.Remove(a.jobRecords.vectors[0])
	}); n != 0 {
		t.Errorf("operations: got %v allocations, want 0", n)
	}
}
