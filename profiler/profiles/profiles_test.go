package profiles

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/measure"
	"github.com/hetero-train/hetero-train/profiler/system"
)

func TestScoreIsAWeightedGeometricMean(t *testing.T) {
	for _, c := range []struct {
		name           string
		tflops, gbytes float64
		memory         float64
		want           float64
	}{
		{"the unit", 1, 10, 0.7, 1},
		{"arithmetic alone", 3, 500, 0, 3},
		{"memory alone", 3, 500, 1, 50},
		{"both doubled is twice as fast", 2, 20, 0.7, 2},
		{"a GTX 1650 in f32", 2.9, 128, 0.7, 8.206},
		{"an H100 in bf16", 700, 3000, 0.7, 386.8},
	} {
		got, err := Score(c.tflops, c.gbytes, c.memory)
		if err != nil || math.Abs(got-c.want) > 1e-3*c.want {
			t.Errorf("%s: got %v, %v, want %v", c.name, got, err, c.want)
		}
	}
	for _, bad := range [][3]float64{{0, 10, 0.5}, {1, 0, 0.5}, {-1, 10, 0.5}, {math.NaN(), 10, 0.5},
		{1, math.Inf(1), 0.5}, {1, 10, 1.1}, {1, 10, -0.1}, {1, 10, math.NaN()}} {
		if got, err := Score(bad[0], bad[1], bad[2]); err == nil {
			t.Errorf("%v: got %v, want an error", bad, got)
		}
	}
}

func TestMemoryFractionIsARoofline(t *testing.T) {
	// These take 3 s and 1 s at 1 TFLOP/s and 100 GB/s.
	product, move := Work{FLOPs: 3e12, Bytes: 1e9}, Work{FLOPs: 1, Bytes: 100e9}
	for _, c := range []struct {
		step []Work
		want float64
	}{
		{[]Work{product, move}, 0.25},
		{[]Work{product}, 0},
		{[]Work{move, move}, 1},
		{nil, DefaultMemoryFraction},
	} {
		if got := MemoryFraction(c.step, 1, 100); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v: got %v, want %v", c.step, got, c.want)
		}
	}
	if fast, slow := MemoryFraction([]Work{product, move}, 10, 100),
		MemoryFraction([]Work{product, move}, 1, 100); fast <= slow {
		t.Errorf("faster arithmetic: got %v, want more than %v of the time bound by memory", fast, slow)
	}
}

func TestTheSlowestIsOne(t *testing.T) {
	if got := Relative([]float64{8, 2, 5}); !slices.Equal(got, []float64{4, 1, 2.5}) {
		t.Errorf("got %v", got)
	}
}

// example returns a profile of two unequal ranks.
func example(t *testing.T) *Ranks {
	t.Helper()
	p := &Ranks{Origin: Origin{SchemaVersion: SchemaVersion, Program: "test"}}
	for rank, m := range []Measured{{TFLOPS: 3, Memory: measure.Bandwidth{Copy: 128}},
		{TFLOPS: 12, Memory: measure.Bandwidth{Copy: 350}}} {
		name := []string{"GTX 1650", "RTX 3060"}[rank]
		p.Ranks = append(p.Ranks, Rank{Rank: rank, Fingerprint: hardware.Fingerprint(name), Measured: m,
			MemoryBytes: int64(4*(rank+1)) << 30, GPU: &hardware.GPU{Name: name}})
	}
	if err := p.Rate("", nil); err != nil {
		t.Fatal(err)
	}
	p.Seal()
	return p
}

func TestRateUsesOneShareForAllRanks(t *testing.T) {
	p := example(t)
	if p.Score.MemoryFraction != DefaultMemoryFraction || p.Ranks[0].RelativeScore != 1 ||
		!(p.Ranks[1].RelativeScore > 2) || math.Abs(p.Ranks[0].ComputeScore-8.3) > 0.05 {
		t.Errorf("got %+v", p)
	}
	if got := p.Ranks[0].String(); got != "Node 0: Compute score 8.3, Memory 4096MB" {
		t.Errorf("got %q", got)
	}
	if err := p.Rate("resnet50", []float64{0.2, 0.4}); err != nil || math.Abs(p.Score.MemoryFraction-0.3) > 1e-12 ||
		math.Abs(p.Score.ComputeFraction-0.7) > 1e-12 || p.Score.Model != "resnet50" {
		t.Errorf("got %+v, %v, want the mean of the ranks' shares", p.Score, err)
	}
	p.Ranks[1].Measured.TFLOPS = 0
	if err := p.Rate("", nil); err == nil || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("a rank without a figure: got %v", err)
	}
}

func TestSavedProfilesAreLoaded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "configs")
	want := example(t)
	host := Describe(system.Host{Name: "node7", CPU: system.CPU{Model: "EPYC", Quota: 0.8},
		Disks: []system.Disk{{Name: "sda", Bytes: 5}}}, nil, "no driver")
	for range 2 { // the second Save replaces the files of the first one
		if err := Save(dir, want, &System{Origin: want.Origin, Hosts: []Host{host}}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Load(filepath.Join(dir, RanksFile))
	if err != nil || len(got.Ranks) != 2 || got.Ranks[1].ComputeScore != want.Ranks[1].ComputeScore ||
		got.Ranks[1].MemoryBytes != 8<<30 ||
		got.Ranks[1].GPU.Name != "RTX 3060" || got.Fingerprint != want.Fingerprint {
		t.Errorf("got %+v, %v", got, err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("the folder holds %v, %v, want the two files alone", left, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, SystemFile))
	if err != nil || !strings.Contains(string(text), `"no_gpu": "no driver"`) ||
		!strings.Contains(string(text), `"gpus": []`) || !strings.Contains(string(text), `"quota": 0.8`) {
		t.Errorf("got %s, %v", text, err)
	}
}

func TestFilesThatAreNoProfileSayWhy(t *testing.T) {
	dir := t.TempDir()
	good := example(t)
	if err := Save(dir, good, &System{Origin: good.Origin}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, RanksFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	swap := func(from, to string) string {
		if !strings.Contains(string(text), from) {
			t.Fatalf("the file has no %s", from)
		}
		return strings.Replace(string(text), from, to, 1)
	}
	for _, c := range []struct{ name, text, want string }{
		{"half a file", string(text[:len(text)/2]), "got no JSON object"},
		{"nothing", "", "got no JSON object"},
		{"another file", `{"lr": 0.1}`, "schema_version: got none"},
		{"a newer one", swap(`"schema_version": 2`, `"schema_version": 3`), "newer hetero-train"},
		{"an unknown version", swap(`"schema_version": 2`, `"schema_version": 0`), "want 1 to 2"},
		{"another type", swap(`"ranks": [`, `"ranks": 3, "x": [`), "ranks"},
		{"no ranks", `{"schema_version": 1, "fingerprint": "f", "ranks": []}`, "ranks: got none"},
		{"no fingerprint", `{"schema_version": 1}`, "fingerprint: got none"},
		{"ranks in disorder", swap(`"rank": 0`, `"rank": 1`), "ranks[0]: rank: got 1, want 0"},
		{"a rank without memory", swap(`"memory_bytes": 4294967296`, `"memory_bytes": 0`), "memory_bytes"},
		{"step times without points", swap(`"compute_score": `, `"step_times": {"points": []}, "compute_score": `),
			"ranks[0]: step_times: points: got none"},
		{
			"step times in disorder", swap(`"compute_score": `, `"step_times": {"points": [{"samples": 8, "seconds": 1}, {"samples": 8, "seconds": 2}]}, "compute_score": `),
			"step_times: points[1]: samples: got 8, want ascending"},
		{
			"a step without a time",
			swap(`"compute_score": `, `"step_times": {"points": [{"samples": 8, "seconds": null}]}, "compute_score": `),
			"points[0]: seconds: got 0"},
		{
			"an error below 0",
			swap(`"compute_score": `,
				`"step_times": {"error": -1, "points": [{"samples": 8, "seconds": 1}]}, "compute_score": `),
			"step_times: error: got -1"},
		{"a rank without a score", swap(`"compute_score": `, `"compute_score": -`), "compute_score"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var format *FormatError
		if _, err := Load(path); !errors.As(err, &format) || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want a FormatError with %q", c.name, err, c.want)
		}
	}
	if _, err := Load(filepath.Join(dir, "none.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: got %v", err)
	}
}

func TestRanksOfOneTypeHaveOneScore(t *testing.T) {
	measured := func(kind string, tflops, copied measure.Figure) Rank {
		return Rank{
			DeviceType: kind, Measured: Measured{DType: "f32", TFLOPS: tflops, Memory: measure.Bandwidth{Copy: copied}}}
	}
	p := &Ranks{Ranks: []Rank{measured("a", 1.0, 20), measured("b", 0.5, 10), measured("a", 1.4, 28),
		measured("a", 1.1, 10), measured("", 1, 10), measured("", 2, 10)}}
	if err := p.Rate("", nil); err != nil {
		t.Fatal(err)
	}
	scores := p.Scores()
	want, err := Score(1.1, 20, DefaultMemoryFraction) // computed from the medians over three ranks
	if err != nil || scores[0] != want || scores[2] != want || scores[3] != want {
		t.Errorf("ranks of one type: got scores %v, want %v for each, %v", scores, want, err)
	}
	if scores[1] >= scores[0] || scores[4] == scores[5] {
		t.Errorf("other types, and unknown ones: got scores %v", scores)
	}
}

func TestFiguresThatWereNotMeasuredAreNull(t *testing.T) {
	dir, p := t.TempDir(), example(t)
	if err := SaveRanks(dir, p); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, RanksFile)
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), `"read_gbytes_per_second": null`) ||
		!strings.Contains(string(text), `"latency_seconds": null`) {
		t.Errorf("got %s, %v, want null for figures that were not measured", text, err)
	}
	if got, err := Load(path); err != nil || got.Ranks[0].Measured.Memory.Read.Known() ||
		got.Ranks[0].Measured.TFLOPS != 3 {
		t.Errorf("read again: got %+v, %v", got, err)
	}
	old := strings.NewReplacer(`"schema_version": 2`, `"schema_version": 1`, `_per_second": null`, `_per_second": 0`,
		`"latency_seconds": null`, `"latency_seconds": 0`).Replace(string(text))
	if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(path); err != nil || got.Ranks[0].Measured.Memory.Read.Known() ||
		got.Ranks[1].ComputeScore != p.Ranks[1].ComputeScore {
		t.Errorf("a file of version 1: got %+v, %v", got, err)
	}
}

func TestPredictionComparesScoresWithTimes(t *testing.T) {
	if p := Predict("m", []float64{4, 2, 1}, []float64{0.1, 0.2, 0.4}); p == nil || p.Error > 1e-12 {
		t.Errorf("scores that are right: got %+v, want no error", p)
	}
	p := Predict("m", []float64{2, 2}, []float64{0.1, 0.144})
	if p == nil || math.Abs(p.Error-0.2) > 1e-9 || math.Abs(p.Ranks[1].Measured-1.2) > 1e-9 ||
		p.Ranks[1].Predicted != 1 {
		t.Errorf("one rank 1.44 times slower than its score: got %+v, want an error of 0.2 for each of the two", p)
	}
	if text := p.String(); !strings.Contains(text, "mean error of 20 %") {
		t.Errorf("got %q", text)
	}
	for _, c := range [][2][]float64{{{1}, {1}}, {{1, 0}, {1, 1}}, {{1, 1}, {1, math.NaN()}}, {{1, 1}, {1}}} {
		if p := Predict("m", c[0], c[1]); p != nil {
			t.Errorf("%v: got %+v, want nothing", c, p)
		}
	}
}

func TestCacheKnowsFiguresByAllTheyDependOn(t *testing.T) {
	c := OpenCache(filepath.Join(t.TempDir(), "new"))
	key := CacheKey{Fingerprint: "f", DeviceType: "cpu 0.8 CPUs", DType: "f32", Program: "1"}
	m := &Measured{DType: "f32", TFLOPS: 1.5, Memory: measure.Bandwidth{Copy: 12}}
	if got, err := c.Load(key); got != nil || err != nil {
		t.Fatalf("nothing stored: got %+v, %v", got, err)
	}
	if err := c.Store(key, m); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Load(key); err != nil || got == nil || got.Measured.TFLOPS != 1.5 ||
		got.Measured.Memory.Copy != 12 {
		t.Errorf("got %+v, %v, want %+v", got, err, m)
	}
	for _, other := range []CacheKey{{"g", key.DeviceType, "f32", "1"}, {"f", "cpu 0.4 CPUs", "f32", "1"},
		{"f", key.DeviceType, "bf16", "1"}, {"f", key.DeviceType, "f32", "2"}} {
		if got, err := c.Load(other); got != nil || err != nil {
			t.Errorf("%+v: got %+v, %v, want nothing", other, got, err)
		}
	}
	if err := os.WriteFile(filepath.Join(c.folder.Dir, key.file()), []byte(`{"schema_version": 2, "key": {`),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Load(key); err == nil || !strings.Contains(err.Error(), filepath.Join(c.folder.Dir, key.file())) {
		t.Errorf("a damaged file: got %v, want an error that names it", err)
	}
}

func TestMatchKnowsHardwareByItsFingerprint(t *testing.T) {
	p := example(t)
	gtx, rtx := p.Ranks[0].Fingerprint, p.Ranks[1].Fingerprint
	for _, c := range []struct {
		name   string
		prints []string
		want   []float64 // expected scores; nil: the profile does not match
		says   string
	}{
		{"the same ranks", []string{gtx, rtx}, []float64{p.Ranks[0].ComputeScore, p.Ranks[1].ComputeScore}, ""},
		{"in another order", []string{rtx, gtx}, []float64{p.Ranks[1].ComputeScore, p.Ranks[0].ComputeScore}, ""},
		{"more cards alike, fewer of another", []string{gtx, gtx, gtx},
			[]float64{p.Ranks[0].ComputeScore, p.Ranks[0].ComputeScore, p.Ranks[0].ComputeScore}, ""},
		{"one card exchanged", []string{gtx, hardware.Fingerprint("H100")}, nil, "rank 1"},
	} {
		ranks, mismatch := p.Match(c.prints)
		var got []float64
		for i, r := range ranks {
			got = append(got, r.ComputeScore)
			if r.Rank != i {
				t.Errorf("%s: entry %d is of rank %d", c.name, i, r.Rank)
			}
		}
		if !slices.Equal(got, c.want) || !strings.Contains(mismatch, c.says) || (c.want == nil) != (mismatch != "") {
			t.Errorf("%s: got %v, %q, want %v", c.name, got, mismatch, c.want)
		}
	}
}
