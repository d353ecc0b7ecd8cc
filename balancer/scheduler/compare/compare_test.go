package compare

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

func near(a, b, relative float64) bool {
	return math.Abs(a-b) <= relative*math.Abs(b) || math.IsNaN(a) && math.IsNaN(b)
}

func TestFiguresOf(t *testing.T) {
	r := &scheduler.Result{Policy: "fcfs",
		Jobs: []scheduler.Completion{{Arrival: 10, Start: 10, Finish: 110},
			{Arrival: 20, Start: 110, Finish: 370, Stops: 2}},
		GPUHours: []float64{0.05, 0.05}, Available: []float64{0.1, 0.1}}
	w := &scheduler.Workload{Jobs: []scheduler.Job{{GPUs: 8}, {GPUs: 2}}}
	got, err := FiguresOf(w, r)
	want := Figures{Completion: 225, Throughput: 20, Utilization: 0.5, Wait: 45, Makespan: 360, Stops: 2, P50: 100,
		P95: 350, P99: 350,
		Gangs: []Gang{{GPUs: 2, Jobs: 1, Mean: 90, Worst: 90}, {GPUs: 8, Jobs: 1}}, GPUHours: 0.1}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	r.Jobs[1].Finish = math.NaN()
	if _, err := FiguresOf(w, r); err == nil || !strings.Contains(err.Error(), "1 of 2 jobs") {
		t.Errorf("a job that did not finish: got error %v", err)
	}
	if _, err := FiguresOf(w, &scheduler.Result{Policy: "fcfs"}); err == nil {
		t.Error("a run without jobs: got no error")
	}
}

// Each percentile must be the value of a job. For several runs, the percentiles must be those of all their jobs
// together.
func TestTails(t *testing.T) {
	sorted := make([]float64, 200)
	for i := range sorted {
		sorted[i] = float64(i + 1)
	}
	for p, want := range map[int]float64{50: 100, 95: 190, 99: 198, 100: 200} {
		if got := percentile(sorted, p); got != want {
			t.Errorf("percentile %d of 1 to 200: got %v, want %v", p, got, want)
		}
	}
	if got := percentile([]float64{7}, 50); got != 7 {
		t.Errorf("one job: got %v, want 7", got)
	}
	runs := Runs{Policy: "fcfs", Figures: []Figures{
		{Completion: 1, Throughput: 1, Utilization: 1, P99: 10, Gangs: []Gang{{1, 2, 10, 15}, {8, 1, 100, 100}}},
		{Completion: 1, Throughput: 1, Utilization: 1, P99: 20, Gangs: []Gang{{1, 2, 20, 30}, {4, 1, 5, 5}}}}}
	s, err := New("fcfs", []uint64{1, 2}, []Runs{runs})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Rows[0].Gangs, []Gang{{1, 4, 15, 30}, {4, 1, 5, 5}, {8, 1, 100, 100}}; !slices.Equal(got, want) ||
		s.Rows[0].P99.Mean != 15 {
		t.Errorf("got %+v with p99 %v, want %+v with 15", got, s.Rows[0].P99.Mean, want)
	}
}

// Expected values are from R 4: t.test(x), wilcox.test(x, exact = TRUE), p.adjust(p, "holm").
func TestPValues(t *testing.T) {
	// Darwin's data on maize plants, in eighths of an inch
	darwin := []float64{49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48}
	if got := studentP(darwin); !near(got, 0.0497029, 1e-5) {
		t.Errorf("Student: got %v", got)
	}
	if got := wilcoxonP(darwin); !near(got, 0.0412598, 1e-5) {
		t.Errorf("Wilcoxon: got %v", got)
	}
	if got := wilcoxonP([]float64{1, 2, 3, 4, 5}); got != 2.0/32 {
		t.Errorf("five positive differences: got %v, want 2/32", got)
	}
	if got := wilcoxonP([]float64{1, 1, -1, 1, 0}); got != 10.0/16 {
		t.Errorf("ties: got %v, want 10/16", got)
	}
	for _, p := range []float64{studentP([]float64{1}), wilcoxonP([]float64{1})} {
		if !math.IsNaN(p) {
			t.Errorf("one difference: got p = %v, want NaN", p)
		}
	}
	got := holm([]float64{0.01, math.NaN(), 0.04, 0.03})
	for i, want := range []float64{0.03, math.NaN(), 0.06, 0.06} {
		if !near(got[i], want, 1e-12) {
			t.Errorf("Holm: got %v, want %v at index %d", got, want, i)
		}
	}
}

// In 4,000 samples, the 95 % interval must contain the true mean in 95 % of the cases, within 4 standard deviations.
func TestIntervalsCoverTheMean(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const samples = 4000
	covered, rejected := 0, 0
	for range samples {
		values := make([]float64, 12)
		for i := range values {
			values[i] = 3 + 2*random.NormFloat64()
		}
		if e := estimate(values); e.Low <= 3 && 3 <= e.High {
			covered++
		}
		for i := range values {
			values[i] -= 3
		}
		if wilcoxonP(values) < 0.05 {
			rejected++
		}
	}
	margin := 4 * math.Sqrt(samples*0.05*0.95)
	if math.Abs(float64(covered)-0.95*samples) > margin {
		t.Errorf("%d of %d intervals contain the mean, want 95 %%", covered, samples)
	}
	if float64(rejected) > 0.05*samples+margin {
		t.Errorf("the signed-rank test rejected a true hypothesis %d times of %d, want at most 5 %%", rejected, samples)
	}
}

func TestRegression(t *testing.T) {
	// Anscombe, Graphs in Statistical Analysis, 1973: data set 1.
	x := []float64{10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5}
	y := []float64{8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68}
	got := regress(x, y)
	if !near(got.Slope, 0.50009, 1e-4) || !near(got.Intercept, 3.00009, 1e-4) || !near(got.R2, 0.66654, 1e-4) ||
		!near(got.P, 0.00217, 1e-2) {
		t.Errorf("got %+v", got)
	}
	if got := regress([]float64{1, 1, 1}, []float64{1, 2, 3}); !math.IsNaN(got.Slope) {
		t.Errorf("equal x: got %+v, want NaN", got)
	}
}

func TestStudy(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	seeds := make([]uint64, 20)
	base, better, equal := Runs{Policy: "fcfs"}, Runs{Policy: "srf"}, Runs{Policy: "static"}
	for i := range seeds {
		seeds[i] = uint64(i)
		f := Figures{Completion: 100 * (1 + random.Float64()), Throughput: 6 * (1 + random.Float64()),
			Utilization: 0.3 + 0.2*random.Float64()}
		base.Figures = append(base.Figures, f)
		noise := 1 + 0.02*random.NormFloat64()
		better.Figures = append(better.Figures, Figures{Completion: f.Completion / 1.25 * noise,
			Throughput: 1.2 * f.Throughput, Utilization: 1.1 * f.Utilization})
		equal.Figures = append(equal.Figures, f)
	}
	s, err := New("fcfs", seeds, []Runs{base, better, equal})
	if err != nil {
		t.Fatal(err)
	}
	fcfs, srf, static := s.Rows[0], s.Rows[1], s.Rows[2]
	if fcfs.V.Mean != 1 || !near(fcfs.HyperScore.Mean, 109.955, 1e-5) || !math.IsNaN(fcfs.CompletionRatio.Student) {
		t.Errorf("baseline: got %+v", fcfs)
	}
	if static.CompletionRatio.Wilcoxon != 1 || static.V.Mean != 1 {
		t.Errorf("equal runs: got %+v", static)
	}
	if !near(srf.CompletionRatio.Mean, 1.25, 0.02) || !near(srf.V.Mean, math.Cbrt(1.25*1.2*1.1), 0.02) {
		t.Errorf("ratios: got %+v, V %v", srf.CompletionRatio, srf.V)
	}
	if srf.CompletionRatio.Student > 1e-6 || srf.CompletionRatio.Wilcoxon > 1e-4 {
		t.Errorf("p values of a clear difference: got %+v", srf.CompletionRatio)
	}
	if h := srf.HyperScore; !(h.Low < h.Mean && h.Mean < h.High) {
		t.Errorf("interval of HyperScore: got %+v", h)
	}
	if s.Regression.Runs != 60 {
		t.Errorf("regression over %d runs, want 60", s.Regression.Runs)
	}
	for name, fails := range map[string]func() (*Study, error){
		"no baseline":  func() (*Study, error) { return New("rule", seeds, []Runs{base}) },
		"missing run":  func() (*Study, error) { return New("fcfs", seeds, []Runs{base, {"srf", better.Figures[:3]}}) },
		"policy twice": func() (*Study, error) { return New("fcfs", seeds, []Runs{base, base}) },
		"no seeds":     func() (*Study, error) { return New("fcfs", nil, []Runs{{"fcfs", nil}}) },
		"zero fraction": func() (*Study, error) {
			return New("fcfs", seeds[:1],
				[]Runs{{"fcfs", base.Figures[:1]}, {"srf", []Figures{{Completion: 1, Throughput: 1}}}})
		},
	} {
		if _, err := fails(); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

// A study with one seed has no intervals. Its JSON contains null in their place.
func TestOneSeed(t *testing.T) {
	f := []Figures{{Completion: 1, Throughput: 2, Utilization: 0.5}}
	s, err := New("fcfs", []uint64{7}, []Runs{{"fcfs", f}, {"srf", f}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil || !strings.Contains(string(text), `"hyperscore":{"mean":109.95`) ||
		!strings.Contains(string(text), `"low":null`) {
		t.Errorf("got %s, %v", text, err)
	}
}

// For many differences, the normal approximation must be close to the exact distribution.
func TestWilcoxonOfManyDifferences(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 20 {
		differences := make([]float64, mostExact)
		for i := range differences {
			differences[i] = random.NormFloat64() + 0.1
		}
		exact := wilcoxonP(differences)
		normal := wilcoxonP(append(differences, 1e-9)) // this additional difference has the lowest rank
		if math.Abs(exact-normal) > 0.01 {
			t.Errorf("got p %v with %d differences and %v with one more", exact, len(differences), normal)
		}
	}
}
