package features

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
)

func TestNormalise(t *testing.T) {
	for _, c := range []struct {
		r       Range
		x, want float64
	}{
		{Range{10, 20, false}, 15, 0.5}, {Range{10, 20, false}, 9, 0}, {Range{10, 20, false}, 21, 1},
		{Range{-1, 1, false}, 0, 0.5},
		{Range{1, 100, true}, 10, 0.5}, {Range{1, 100, true}, 0, 0}, {Range{1, 100, true}, math.Inf(1), 1},
		{Range{1, 100, true}, -5, 0},
	} {
		if got := c.r.Normalise(c.x); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v in %+v: got %v, want %v", c.x, c.r, got, c.want)
		}
	}
	if !math.IsNaN(fraction.Normalise(math.NaN())) {
		t.Error("NaN: got a number")
	}
	for _, f := range facts {
		if err := f.Range.check(f.Name); err != nil {
			t.Error(err)
		}
	}
}

// run returns a simulation of the default cluster.
func run(t testing.TB, jobs int) *simulate.Sim {
	t.Helper()
	setup := workload.Default()
	w, err := workload.Generate(setup, workload.Arrivals{Jobs: jobs, Load: 1.2, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	sim, err := simulate.New(setup.Cluster, w, setup.Speeds, simulate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

// play runs policy fcfs, and calls see with each state.
func play(t testing.TB, sim *simulate.Sim, see func(s *scheduler.State)) {
	t.Helper()
	policy, err := scheduler.New("fcfs", scheduler.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := sim.State()
	if err := policy.Reset(s.Cluster, s.Workload, s.Speeds); err != nil {
		t.Fatal(err)
	}
	for !sim.Done() {
		see(sim.State())
		if a := policy.Decide(sim.State()); a.Verb != scheduler.Wait {
			if err := sim.Apply(a); err != nil {
				t.Fatal(err)
			}
		} else if !sim.Next(math.Inf(1)) {
			break
		}
	}
}

func extractor(t testing.TB, o Options, s *scheduler.State) *Extractor {
	t.Helper()
	x, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Reset(s.Cluster, s.Workload, s.Speeds); err != nil {
		t.Fatal(err)
	}
	return x
}

func TestFeaturesOfARunAreBetweenZeroAndOneAndMissingOnesAreMasked(t *testing.T) {
	sim := run(t, 60)
	x := extractor(t, Options{Jobs: 4, GPUs: 20}, sim.State())
	values, mask := make([]float32, x.Size()), make([]float32, x.Size())
	at := func(name string) int {
		i := slices.Index(x.Names(), name)
		if i < 0 {
			t.Fatalf("no feature %s in %v", name, x.Names())
		}
		return i
	}
	states, queued := 0, 0
	play(t, sim, func(s *scheduler.State) {
		states++
		x.Fill(values, mask, s)
		for i, v := range values {
			if !(v >= 0 && v <= 1) || mask[i] != 0 && mask[i] != 1 || mask[i] == 0 && v != 0 {
				t.Fatalf("state %d: %s: got %v with mask %v", states, x.Names()[i], v, mask[i])
			}
		}
		for gpu := range 20 { // GPU numbers follow the order of machines
			exists := gpu < len(s.Cluster.GPUs)
			name := "gpu[" + string(rune('0'+gpu%10)) + "]."
			if gpu >= 10 {
				name = "gpu[1" + string(rune('0'+gpu%10)) + "]."
			}
			if got := mask[at(name+"occupancy")] == 1; got != exists {
				t.Fatalf("state %d: %soccupancy is known: got %v, want %v", states, name, got, exists)
			}
			if exists && values[at(name+"occupancy")] != float32(len(s.OnGPU[gpu]))/scheduler.MaxSharing {
				t.Fatalf("state %d: %soccupancy: got %v, want that of %d jobs", states, name,
					values[at(name+"occupancy")], len(s.OnGPU[gpu]))
			}
			if mask[at(name+"temperature")] != 0 { // the default cluster has no measurements
				t.Fatalf("state %d: %stemperature is known", states, name)
			}
		}
		queued = max(queued, len(s.Queue))
		for k := range 4 {
			name := "job[" + string(rune('0'+k)) + "]."
			if got, want := mask[at(name+"priority")] == 1, k < len(s.Queue); got != want {
				t.Fatalf("state %d: %spriority is known: got %v, want %v", states, name, got, want)
			}
			if k < len(s.Queue) {
				j := s.Workload.Jobs[s.Queue[k]]
				class := values[at(name+"simulation")] + values[at(name+"learning")] + values[at(name+"processing")]
				if values[at(name+"priority")] != float32(j.Priority) || class != 1 {
					t.Fatalf("state %d: job %d: got priority %v and classes %v, want %v and 1", states, k,
						values[at(name+"priority")], class, j.Priority)
				}
			}
		}
	})
	if states < 60 || queued < 5 {
		t.Fatalf("got %d states and a queue of up to %d jobs, want a busier run", states, queued)
	}
}

func TestFillDoesNotAllocate(t *testing.T) {
	sim := run(t, 20)
	x := extractor(t, Options{Jobs: 4, GPUs: 16}, sim.State())
	values, mask := make([]float32, x.Size()), make([]float32, x.Size())
	if n := testing.AllocsPerRun(100, func() { x.Fill(values, mask, sim.State()) }); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

func TestAClusterThatIsTooLargeIsAnError(t *testing.T) {
	s := run(t, 1).State()
	x, err := New(Options{Jobs: 1, GPUs: 15})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Reset(s.Cluster, s.Workload, s.Speeds); err == nil ||
		!strings.Contains(err.Error(), "got a cluster with 16 GPUs, want at most 15") {
		t.Errorf("got %v", err)
	}
	for _, o := range []Options{{Jobs: -1, GPUs: 1}, {Jobs: 1}, {GPUs: 1 << 20}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v: got no error", o)
		}
	}
}

func TestLearntRanges(t *testing.T) {
	l := NewLearner(1)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20000 {
		if err := l.Add("gpu.temperature", 40+20*rng.Float64()); err != nil {
			t.Fatal(err)
		}
	}
	l.Add("gpu.temperature", 3000) // one faulty sensor
	l.Add("gpu.temperature", math.NaN())
	l.Add("job.cpus", 0)
	l.Add("job.cpus", 2)
	l.Add("job.cpus", 8)
	l.Add("job.memory", 5)
	l.Add("job.memory", 5)
	l.Add("job.priority", 0.25)
	l.Add("job.priority", 0.75)
	all, err := l.Ranges(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	robust, err := l.Ranges(0.01, 0.99)
	if err != nil {
		t.Fatal(err)
	}
	if r, origin, _ := all.Of("gpu.temperature"); r.High != 3000 || r.Low < 40 || r.Low > 40.1 ||
		origin != "minimum and maximum" {
		t.Errorf("minimum and maximum: got %+v, %s", r, origin)
	}
	// The tolerance 0.2 degrees is 1 % of 20 degrees. Four standard errors of a quantile of 4096 values are 0.6 % of 20
	// degrees.
	if r, origin, _ := robust.Of("gpu.temperature"); math.Abs(r.Low-40.2) > 0.13 || math.Abs(r.High-59.8) > 0.13 ||
		origin != "quantiles 0.01 to 0.99" {
		t.Errorf("quantiles: got %+v, %s, want 40.2 to 59.8", r, origin)
	}
	if r, _, _ := all.Of("job.cpus"); r.Low != 2 || r.High != 8 || !r.Log {
		t.Errorf("a logarithmic scale: got %+v, want 2 to 8 without the 0", r)
	}
	// Equal values, a fraction, and a fact without values.
	for _, fact := range []string{"job.memory", "job.priority", "gpu.compute"} {
		if _, origin, _ := all.Of(fact); origin != "default" {
			t.Errorf("%s: got the range of %s, want the default", fact, origin)
		}
	}
	if l.Add("gpu.temprature", 1) == nil || all.Set("x", Range{0, 1, false}) == nil ||
		all.Set("job.cpus", Range{0, 1, true}) == nil || all.Set("job.cpus", Range{1, 1, false}) == nil {
		t.Error("an unknown fact or an invalid range: got no error")
	}
	if _, err := l.Ranges(0.9, 0.1); err == nil {
		t.Error("quantiles in the wrong order: got no error")
	}
}

func TestRangesOfStatesAndWorkloads(t *testing.T) {
	sim := run(t, 60)
	x := extractor(t, Options{Jobs: 4, GPUs: 16}, sim.State())
	l := NewLearner(2)
	l.Workload(sim.State().Cluster, sim.State().Workload)
	play(t, sim, func(s *scheduler.State) { x.Learn(l, s) })
	r, err := l.Ranges(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, fact := range []string{"gpu.bandwidth", "job.running_time", "job.cpus", "cluster.queue", "gpu.busy_for"} {
		if rng, origin, _ := r.Of(fact); origin == "default" {
			t.Errorf("%s: got the default %+v, want a learnt range", fact, rng)
		}
	}
	// All known facts of a GPU must be inside of the learnt ranges.
	for gpu := range sim.State().Cluster.GPUs {
		for _, v := range r.GPU(sim.State().Cluster, gpu) {
			if !math.IsNaN(v.Raw) && !(v.Normalised >= 0 && v.Normalised <= 1) ||
				math.IsNaN(v.Raw) != math.IsNaN(v.Normalised) {
				t.Errorf("GPU %d: got %+v", gpu, v)
			}
		}
	}
	if v := r.Job(sim.State().Workload, 0); len(v) != 10 || v[0].Name != "job.priority" || v[0].Raw != v[0].Normalised {
		t.Errorf("facts of a job: got %+v", v)
	}
}

func file(t testing.TB, r *Ranges) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteRanges(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRangesSurviveAFile(t *testing.T) {
	r := DefaultRanges()
	if err := r.Set("job.cpus", Range{0.1, 1.0 / 3, true}); err != nil {
		t.Fatal(err)
	}
	back, err := ReadRanges("r.json", strings.NewReader(file(t, r)))
	if err != nil || *back != *r {
		t.Errorf("got %+v, %v, want %+v", back, err, r)
	}
}

func TestFaultyRangesAreErrors(t *testing.T) {
	text := file(t, DefaultRanges())
	for _, c := range []struct{ text, want string }{
		{text[:len(text)-20], "want one complete JSON object"},
		{strings.Replace(text, `"version": 1`, `"version": 2`, 1), "got version 2, want 1"},
		{strings.Replace(text, `"job.cpus"`, `"job.memory"`, 1), "got job.memory a second time"},
		{strings.Replace(text, `"job.cpus"`, `"job.memory"`, 1), "got no range of job.cpus"},
		{strings.Replace(text, `"job.cpus"`, `"job.cores"`, 1), `got "job.cores", want the name of a feature`},
		{strings.Replace(text, `"high": 64,`, `"high": -64,`, 1), "range of job.gpus: got 1 to -64"},
		{strings.Replace(text, `"unit": "C"`, `"unit": "K"`, 1), `gpu.temperature: got unit "K", want "C"`},
		{strings.Replace(text, `"version"`, `"other": 1, "version"`, 1), "unknown field"},
	} {
		if _, err := ReadRanges("r.json", strings.NewReader(c.text)); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
	}
}

func FuzzReadRanges(f *testing.F) {
	text := file(f, DefaultRanges())
	f.Add([]byte(text))
	f.Add([]byte(text[:500]))
	f.Add([]byte(strings.Replace(text, `"low": 1,`, `"low": 1e-320,`, 2)))
	f.Add([]byte(strings.Replace(text, `"high": 64,`, `"high": 1.7e308,`, 2)))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ReadRanges("f", bytes.NewReader(text))
		if err != nil {
			return
		}
		for f, rng := range r.ranges {
			for _, x := range []float64{-math.MaxFloat64, -1, 0, 1e-300, 1, 1e300, math.MaxFloat64, math.Inf(1),
				rng.Low, rng.High} {
				if v := rng.Normalise(x); !(v >= 0 && v <= 1) {
					t.Fatalf("%s: %v in %+v: got %v", facts[f].Name, x, rng, v)
				}
			}
		}
		if back, err := ReadRanges("f", strings.NewReader(file(t, r))); err != nil || back.ranges != r.ranges {
			t.Fatalf("written and read again: got %v, %v", back, err)
		}
	})
}

func BenchmarkFill(b *testing.B) {
	sim := run(b, 100)
	x := extractor(b, Options{Jobs: 8, GPUs: 16}, sim.State())
	values, mask := make([]float32, x.Size()), make([]float32, x.Size())
	for sim.Next(math.Inf(1)) && len(sim.State().Queue) < 8 {
	}
	for b.Loop() {
		x.Fill(values, mask, sim.State())
	}
}

// A job without a slot must have the same features as in a slot.
func TestFeaturesOfAJobWithoutASlot(t *testing.T) {
	sim := run(t, 60)
	few, many := extractor(t, Options{GPUs: 16}, sim.State()), extractor(t, Options{Jobs: 8, GPUs: 16}, sim.State())
	values, mask := make([]float32, many.Size()), make([]float32, many.Size())
	one, known := make([]float32, PerJob), make([]float32, PerJob)
	compared := 0
	play(t, sim, func(s *scheduler.State) {
		many.Fill(values, mask, s)
		for k, job := range s.Queue[:min(8, len(s.Queue))] {
			few.FillJob(one, known, s, job)
			at := PerCluster + 16*PerGPU + k*PerJob
			if compared++; !slices.Equal(one, values[at:at+PerJob]) || !slices.Equal(known, mask[at:at+PerJob]) {
				t.Fatalf("job %d: got %v with mask %v, want %v with mask %v", job, one, known, values[at:at+PerJob],
					mask[at:at+PerJob])
			}
		}
	})
	if compared < 20 {
		t.Errorf("got %d waiting jobs, want at least 20", compared)
	}
}
