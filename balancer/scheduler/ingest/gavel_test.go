package ingest

import (
	"bytes"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/workload"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

const gavelText = `{
 "k80": {
  "('A (batch size 16)', 1)": {"null": 8, "('A (batch size 16)', 1)": [3, 3], "('A (batch size 32)', 1)": [2, 1]},
  "('A (batch size 32)', 1)": {"null": 5, "('A (batch size 16)', 1)": [1, 2]},
  "('A (batch size 16)', 2)": {"null": 12},
  "('B', 1)": {"null": 0}
 },
 "v100": {
  "('A (batch size 16)', 1)": {"null": 40},
  "('A (batch size 32)', 1)": {"null": 25},
  "('A (batch size 16)', 2)": {"null": 60}
 },
 "v100_unconsolidated": {
  "('A (batch size 16)', 1)": {"null": 40},
  "('A (batch size 16)', 2)": {"null": 50}
 }
}
`

func TestReadGavel(t *testing.T) {
	g, err := ReadGavel("g.json", strings.NewReader(gavelText))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"k80", "v100"}; !slices.Equal(g.Types, want) {
		t.Errorf("types: got %v, want %v", g.Types, want)
	}
	if len(g.Kinds) != 3 || g.Kinds[2].Name != "B" || !math.IsNaN(g.Kinds[0].GPUMemory) {
		t.Errorf("kinds: got %+v", g.Kinds)
	}
	for _, c := range []struct {
		kind, typ, n int
		spread       bool
		want         float64
	}{
		// Speeds are steps of the whole gang, over all its GPUs.
		{0, 0, 1, false, 8}, {0, 0, 2, false, 12}, {0, 1, 2, false, 60}, {0, 1, 2, true, 50},
		// Speeds over several machines were not measured; a gang of one GPU is on one machine.
		{0, 0, 2, true, 0}, {0, 0, 1, true, 8},
		{0, 0, 3, false, 0}, {2, 0, 1, false, 0}, {2, 1, 1, false, 0},
	} {
		if got := g.Speeds.Alone(c.kind, c.typ, c.n, c.spread); got != c.want {
			t.Errorf("kind %d on %d GPUs of type %d, spread %v: got %v, want %v", c.kind, c.n, c.typ, c.spread, got,
				c.want)
		}
	}
	for _, c := range []struct {
		kind, other int
		want        float64
	}{{0, 0, 3}, {0, 1, 2}, {1, 0, 1}} {
		if got, ok := g.Speeds.Shared(c.kind, c.other, 0, 1); got != c.want || !ok {
			t.Errorf("kind %d with %d: got %v, %v, want %v", c.kind, c.other, got, ok, c.want)
		}
	}
	// 32 samples run on a K80 and a V100. The curve of kind A has the times of batches 16 and 32.
	if k := g.Speeds.Kinds[0]; k.Batch != 16 || k.Curves[0].At(16) != 1.0/8 || k.Curves[0].At(32) != 1.0/5 ||
		k.Curves[1].At(32) != 1.0/25 {
		t.Errorf("curves of A: got %+v", k)
	}
	if g.Speeds.Kinds[2].Curves != nil {
		t.Error("kind B has no batch sizes: got curves, want none")
	}
	if speed, ok := g.Speeds.Mixed(0, []int{1, 1}, false); !ok || !(speed >= 12) {
		t.Errorf("A on a K80 and a V100: got %v, %v, want at least the 12 steps/s of two K80", speed, ok)
	}
}

func TestReadGavelNamesAllFaults(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"k80": {"('A', 1)": {"null": -1}, "A": {}, "('B', 1)": {}}}`, `g.json:1: speed of "('A', 1)": got "-1"` +
			"\n" +
			`g.json:1: kind of job: got "A"` + "\n" + `g.json:1: kind "('B', 1)": got no speed`},
		{"{\"k80\":\n {\"('A', 1)\": {\"null\": 1,", "g.json:2: not a JSON object"},
		{`[]`, "g.json:1: not a JSON object of GPU types: got ["},
		{`{}`, "types of GPUs: got none"},
		{`{"k80_unconsolidated": {}}`, `want speeds of both types`},
		{`{"k80": {}, "k80": {}}`, `got "k80" a second time`},
		{`{"k80": {"('A', 1)": {"null": 1}, "('A', 1)": {"null": 2}}}`, "each kind and number of GPUs once"},
		{"{\"k80\": {\n\"('A', 1)\": {\"null\": 1,\n\"('B', 2)\": [1, 1], \"('C', 1)\": [1], \"('D', 1)\": [1, 2], \"('D', 1)\": [1, 2]}}}",
			"g.json:3: speeds of \"('A', 1)\" with \"('B', 2)\": got different numbers"},
		{`{"k80": {"('A', 1)": {"null": 1}}} x`, "not a JSON object"},
		{`{"k80": 3}`, "an object of kinds of jobs"},
		{`{"k80": {"('A', 4097)": {"null": 1}}}`, "with 1 to 4096 GPUs"},
		{"{\"k80\": \"\xff\"}", "bytes that are not UTF-8"},
	} {
		_, err := ReadGavel("g.json", strings.NewReader(c.text))
		if err == nil {
			t.Errorf("%s: got no error", c.text)
			continue
		}
		for _, want := range strings.Split(c.want, "\n") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s:\ngot  %v\nwant %s", c.text, err, want)
			}
		}
	}
}

var traceKinds = []scheduler.Kind{{Name: "A (batch size 16)"}, {Name: "B"}}

const traceText = "A (batch size 16)\tcd %s && python3 x.py\t-step\t1\t600\t0.000000\t4\n" +
	"B\tpython3 y.py\t-n\t0\t7\t12.500000\t1\n"

func TestGavelTrace(t *testing.T) {
	jobs, err := GavelTrace("t.trace", strings.NewReader(traceText), traceKinds)
	if err != nil {
		t.Fatal(err)
	}
	if len(jobs) != 2 || jobs[0].Work != 600 || jobs[0].GPUs != 4 || jobs[1].Kind != 1 || jobs[1].Arrival != 12.5 ||
		!math.IsNaN(jobs[0].Priority) {
		t.Errorf("got %+v", jobs)
	}
	long := "B\tcmd\tdir\t-n\t0\t9\t1\t1.0\t-1.000000\t3.5\r\n"
	if jobs, err = GavelTrace("t.trace", strings.NewReader(long), traceKinds); err != nil || jobs[0].Work != 9 ||
		jobs[0].Arrival != 3.5 {
		t.Errorf("10 fields: got %+v, %v", jobs, err)
	}
}

func TestGavelTraceNamesAllFaults(t *testing.T) {
	text := "B\tc\t-n\t0\t7\t5\t1\n" +
		"B\tc\t-n\t0\t7\t4\t1\n" + // the lines are out of order
		"A (batch size 17)\tc\t-n\t0\t0\t-6\t0\n" +
		"B\tc\t-n\t0\t7\n" +
		"B\tc\t-n\t0\t7\tNaN\t1\n" +
		"B\tc\t-n\t0\t7\t9" // the last line is incomplete
	_, err := GavelTrace("t.trace", strings.NewReader(text), traceKinds)
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{
		"t.trace:2: arrival: got 4 s after 5 s",
		`t.trace:3: kind of job: got "A (batch size 17)", want a kind that has speeds; the nearest is "A (batch size 16)"`,
		`t.trace:3: steps: got "0"`, `t.trace:3: arrival: got "-6"`, `t.trace:3: number of GPUs: got "0"`,
		"t.trace:4: fields of a job: got 5, want 7",
		`t.trace:5: arrival: got "NaN"`,
		"t.trace:6: last line: got", "want a complete file",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got\n%v\nwant %s", err, want)
		}
	}
	if n := len(err.(*Error).Faults); n != 8 {
		t.Errorf("got %d faults, want 8:\n%v", n, err)
	}
	if _, err := GavelTrace("t.trace", strings.NewReader("\n"), traceKinds); err == nil ||
		!strings.Contains(err.Error(), "jobs: got none") {
		t.Errorf("a trace without jobs: got %v", err)
	}
}

// dataFile opens a file of the public data, or skips the test.
func dataFile(t *testing.T, path ...string) *os.File {
	t.Helper()
	f, err := os.Open(needtest.Data(t, path...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestGavelsOwnFiles(t *testing.T) {
	g, err := ReadGavel("throughputs", dataFile(t, "gavel", "simulation_throughputs.json"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"k80", "p100", "v100"}; !slices.Equal(g.Types, want) || len(g.Kinds) != 26 {
		t.Fatalf("got types %v and %d kinds, want %v and 26", g.Types, len(g.Kinds), want)
	}
	kind := slices.IndexFunc(g.Kinds, func(k scheduler.Kind) bool { return k.Name == "ResNet-50 (batch size 64)" })
	for _, c := range []struct {
		typ, n int
		spread bool
		want   float64 // value in the file
	}{{0, 1, false, 0.6190282202246573}, {1, 8, false, 18.221203053711378}, {2, 4, true, 11.136430014818272},
		{0, 2, true, 0}} {
		if got := g.Speeds.Alone(kind, c.typ, c.n, c.spread); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("ResNet-50 on %d GPUs of type %d: got %v, want %v", c.n, c.typ, got, c.want)
		}
	}
	if len(g.Speeds.Kinds[kind].Curves[2]) != 4 {
		t.Errorf("curve of ResNet-50 on V100: got %v, want the batches 16, 32, 64, 128", g.Speeds.Kinds[kind].Curves[2])
	}
	// A mixed gang must be faster than a gang of its slower type, and not faster than a gang of its faster type.
	slow, fast := g.Speeds.Alone(kind, 1, 2, true), g.Speeds.Alone(kind, 2, 2, true)
	if mixed, ok := g.Speeds.Mixed(kind, []int{0, 1, 1}, true); !ok || !(mixed > slow*0.99 && mixed < fast*1.01) {
		t.Errorf("ResNet-50 on a P100 and a V100: got %v, %v, want a speed between %v and %v", mixed, ok, slow, fast)
	}
	var types []scheduler.GPUType
	var machines []workload.MachineSpec
	for i, name := range g.Types {
		types = append(types, scheduler.GPUType{Name: name, Memory: 16 << 30})
		machines = append(machines, workload.MachineSpec{Count: 1, Type: i, GPUs: 64, Network: 1e9})
	}
	cluster := workload.NewCluster(types, machines...)
	for name, want := range map[string]struct {
		unmeasured int
		last       float64
	}{"6c71a0-seed0": {63, 2590914}, "6c71a0-seed1": {52, 2590914}, "ee9e8c-seed0": {371, 4508448},
		"ee9e8c-seed1": {350, 4508448}} {
		jobs, err := GavelTrace(name, dataFile(t, "gavel", "traces", name+".trace"), g.Kinds)
		if err != nil {
			t.Fatal(err)
		}
		if len(jobs) != 2000 || jobs[1999].Arrival != want.last {
			t.Errorf("%s: got %d jobs, the last at %v s, want 2000, %v s", name, len(jobs), jobs[len(jobs)-1].Arrival,
				want.last)
		}
		d, err := g.Data(*cluster, jobs)
		if err != nil {
			t.Fatal(err)
		}
		d.Fill(Unlimited())
		unmeasured, first := d.Unplaceable()
		d.Workload.Jobs = Without(d.Workload.Jobs, unmeasured)
		if err := d.Check(); err != nil || len(unmeasured) != want.unmeasured ||
			len(d.Workload.Jobs)+len(unmeasured) != 2000 {
			t.Errorf("%s: got %d jobs without speeds (%v), %d with (%v), want %d without", name, len(unmeasured), first,
				len(d.Workload.Jobs), err, want.unmeasured)
		}
	}
}

func FuzzReadGavel(f *testing.F) {
	f.Add([]byte(gavelText))
	f.Add([]byte(`{"k80": {"('A (batch size 0)', 3)": {"null": 1e-320}}}`))
	f.Add([]byte(`{"k80": {"('A', 1)": {"null": 1e400}}, "_unconsolidated": {}}`))
	f.Add([]byte(gavelText[:200]))
	f.Fuzz(func(t *testing.T, text []byte) {
		g, err := ReadGavel("f", bytes.NewReader(text))
		if err != nil {
			return
		}
		for kind := range g.Kinds {
			for typ := range g.Types {
				for n := range 5 {
					if v := g.Speeds.Alone(kind, typ, n, n%2 == 0); !(v >= 0) || math.IsInf(v, 0) {
						t.Fatalf("speed of kind %d: got %v", kind, v)
					}
				}
			}
			counts := make([]int, len(g.Types))
			for i := range counts {
				counts[i] = 1
			}
			if v, ok := g.Speeds.Mixed(kind, counts, true); ok && !(v >= 0) {
				t.Fatalf("speed of kind %d on all types: got %v", kind, v)
			}
		}
	})
}

func FuzzGavelTrace(f *testing.F) {
	f.Add([]byte(traceText))
	f.Add([]byte("B\tc\t-n\t0\t9007199254740993\t1e308\t4096\n"))
	f.Add([]byte("B\tcmd\tdir\t-n\t0\t9\t1\t1.0\t-1.000000\t3.5\r\n"))
	f.Add([]byte(traceText[:50]))
	f.Fuzz(func(t *testing.T, text []byte) {
		jobs, err := GavelTrace("f", bytes.NewReader(text), traceKinds)
		if err != nil {
			return
		}
		last := 0.0
		for i, j := range jobs {
			if !(j.Work > 0) || !(j.Arrival >= last) || j.GPUs < 1 || j.Kind < 0 || j.Kind > 1 {
				t.Fatalf("job %d: got %+v after arrival %v", i, j, last)
			}
			last = j.Arrival
		}
	})
}

func TestGavelsSpeedsOfACluster(t *testing.T) {
	g, err := ReadGavel("g.json", strings.NewReader(gavelText))
	if err != nil {
		t.Fatal(err)
	}
	c := scheduler.Cluster{Types: []scheduler.GPUType{{Name: "V100", Memory: 16 << 30}}}
	d, err := g.Data(c, []scheduler.Job{{Kind: 1, Work: 1, GPUs: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Speeds.Alone(0, 0, 2, true); got != 50 || len(d.Speeds.Kinds[0].Types) != 1 ||
		len(d.Speeds.Pairs) != 0 {
		t.Errorf("two V100: got %v, table %+v", got, d.Speeds)
	}
	c.Types = append(c.Types, scheduler.GPUType{Name: "k80"}) // the types are in another order than in the file
	if d, err = g.Data(c, nil); err != nil {
		t.Fatal(err)
	}
	if got, ok := d.Speeds.Shared(0, 1, 1, 1); got != 2 || !ok || d.Speeds.Kinds[0].Curves[1].At(16) != 1.0/8 {
		t.Errorf("a pair on K80: got %v, %v", got, ok)
	}
	for _, name := range []string{"T4", "K80"} {
		c.Types[0].Name = name
		if _, err := g.Data(c, nil); err == nil {
			t.Errorf("types %s and k80: got no error", name)
		}
	}
}

func TestGavelsTraceIsReadyToSimulateAfterTheUserFillsWhatItLacks(t *testing.T) {
	g, err := ReadGavel("throughputs", dataFile(t, "gavel", "simulation_throughputs.json"))
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := GavelTrace("trace", dataFile(t, "gavel", "traces", "6c71a0-seed0.trace"), g.Kinds)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := Read(source("c.toml", TOML, "", `[[gpu_types]]
name = "v100"
memory = "16 GiB"
[[gpu_types]]
name = "p100"
memory = "16 GiB"
[[machines]]
name = "a"
cpus = 64
memory = "512 GiB"
gpu_type = "v100"
gpus = 8
`))
	if err != nil {
		t.Fatal(err)
	}
	d, err := g.Data(cluster.Cluster, jobs)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Check(); err == nil || !strings.Contains(err.Error(), "jobs.priority: missing in 2000 of 2000 rows") {
		t.Errorf("before the defaults: got %v", err)
	}
	d.Fill(Unlimited())
	unplaceable, first := d.Unplaceable()
	if first == nil || d.Check() == nil {
		t.Error("jobs that the cluster cannot hold: got no error")
	}
	d.Workload.Jobs = Without(d.Workload.Jobs, unplaceable)
	if err := d.Check(); err != nil {
		t.Errorf("after the defaults: got %v", err)
	}
}
