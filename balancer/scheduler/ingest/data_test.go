package ingest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/simulate"
)

const tomlText = `# a small cluster
[[gpu_types]]
name = "V100"
memory = "16 GiB"
bandwidth = "900 GB/s"
compute = "15.7 TFLOP/s"

[[gpu_types]]
name = "T4"
memory = 17179869184

[[machines]]
name = "a"
cpus = 32
memory = "256 GiB"
network = "10 Gbit/s"
gpu_type = "V100"
gpus = 2

[[machines]]
name = "b"
cpus = 16
memory = "128 GiB"

[[gpus]]
name = "b/t4"
type = "T4"
machine = "b"
utilization = "35 %"
temperature = "61 °C"

[[kinds]]
name = "ResNet"
class = "learning"
gpu_memory = "8 GiB"
save = "500 ms"
load = 2
batch = 64

[[jobs]]
name = "first"
kind = "ResNet"
arrival = 0
work = 1_000
gpus = 2
cpus = 4
memory = "16 GiB"
network = "1 Gbit/s"
priority = 0.5

[[jobs]]
name = "second"
kind = "ResNet"
arrival = "1.5 min"
work = 500
gpus = 1

[[speeds]]
kind = "ResNet"
gpu_type = "V100"
gpus = 1
speed = "10 steps/s"

[[speeds]]
kind = "ResNet"
gpu_type = "V100"
gpus = 2
speed = 18

[[speeds]]
kind = "ResNet"
gpu_type = "T4"
gpus = 1
speed = "240 steps/min"

[[pairs]]
kind = "ResNet"
other = "ResNet"
gpu_type = "V100"
gpus = 1
speed = 6
other_speed = 6

[[curves]]
kind = "ResNet"
gpu_type = "V100"
samples = 32
seconds = "60 ms"

[[curves]]
kind = "ResNet"
gpu_type = "V100"
samples = 64
seconds = "100 ms"
`

func source(name string, format Format, table Table, text string) Source {
	return Source{Name: name, Format: format, Table: table, Reader: strings.NewReader(text)}
}

func TestReadTOML(t *testing.T) {
	d, err := Read(source("c.toml", TOML, "", tomlText))
	if err != nil {
		t.Fatal(err)
	}
	c, w := d.Cluster, d.Workload
	if len(c.Types) != 2 ||
		c.Types[0] != (scheduler.GPUType{Name: "V100", Memory: 16 << 30, Bandwidth: 900e9, Compute: 15.7e12}) ||
		c.Types[1].Memory != 16<<30 || !math.IsNaN(c.Types[1].Bandwidth) {
		t.Errorf("types: got %+v", c.Types)
	}
	if len(c.Machines) != 2 || c.Machines[0].Network != 1.25e9 || !slices.Equal(c.Machines[0].GPUs, []int{0, 1}) ||
		!slices.Equal(c.Machines[1].GPUs, []int{2}) {
		t.Errorf("machines: got %+v", c.Machines)
	}
	if g := c.GPUs; len(g) != 3 || g[1].Name != "a/1" ||
		g[2] != (scheduler.GPU{Name: "b/t4", Type: 1, Machine: 1, Utilization: 0.35, Temperature: 61}) {
		t.Errorf("GPUs: got %+v", c.GPUs)
	}
	if len(w.Kinds) != 1 || w.Kinds[0] != (scheduler.Kind{Name: "ResNet", Class: scheduler.Learning, GPUMemory: 8 << 30,
		Save: 0.5, Load: 2}) {
		t.Errorf("kinds: got %+v", w.Kinds)
	}
	if j := w.Jobs; len(j) != 2 ||
		j[0] != (scheduler.Job{Name: "first", Work: 1000, GPUs: 2, CPUs: 4, Memory: 16 << 30, Network: 1.25e8,
			Priority: 0.5}) || j[1].Arrival != 90 || !math.IsNaN(j[1].CPUs) {
		t.Errorf("jobs: got %+v", j)
	}
	if d.JobPlace[1].String() != "c.toml:51" {
		t.Errorf("place of the second job: got %v", d.JobPlace[1])
	}
	for _, c := range []struct {
		typ, n int
		spread bool
		want   float64
	}{{0, 1, false, 10}, {0, 1, true, 10}, {0, 2, false, 18}, {0, 2, true, 0}, {1, 1, false, 4}} {
		if got := d.Speeds.Alone(0, c.typ, c.n, c.spread); got != c.want {
			t.Errorf("speed on %d GPUs of type %d, spread %v: got %v, want %v", c.n, c.typ, c.spread, got, c.want)
		}
	}
	if k := d.Speeds.Kinds[0]; k.Batch != 64 || k.Curves[0].At(64) != 0.1 || k.Curves[1] != nil {
		t.Errorf("curves: got %+v", k)
	}
	if speed, ok := d.Speeds.Shared(0, 0, 0, 1); !ok || speed != 6 {
		t.Errorf("pair: got %v, %v, want 6", speed, ok)
	}
}

// csvSources and jsonSources contain the same cluster and jobs.
var csvSources = []Source{
	{Name: "types.csv", Format: CSV, Table: GPUTypes}, {Name: "machines.csv", Format: CSV, Table: Machines},
	{Name: "gpus.csv", Format: CSV, Table: GPUs},
	{Name: "kinds.csv", Format: CSV, Table: Kinds}, {Name: "jobs.csv", Format: CSV, Table: Jobs},
	{Name: "speeds.csv", Format: CSV, Table: Speeds},
	{Name: "pairs.csv", Format: CSV, Table: Pairs}, {Name: "curves.csv", Format: CSV, Table: Curves},
}

var csvTexts = []string{
	"name,memory,bandwidth,compute\nV100,16 GiB,900 GB/s,15.7 TFLOPS\n\n# smaller\nT4,17179869184,,\n",
	"name,cpus,memory,network,gpu_type,gpus\r\na,32,256 GiB,1.25 GB/s,V100,2\r\nb,16,128 GiB,,,\r\n",
	"temperature, name, type, machine, utilization\n61,b/t4,T4,b,0.35\n",
	"name,class,gpu_memory,save,load,batch\nResNet,Learning,8 GiB,0.5,2 s,64\n",
	"name,kind,arrival,work,gpus,cpus,memory,network,priority\nfirst,ResNet,0,1e3,2,4,16 GiB,125 MB/s,0.5\n\"second\",ResNet,90,500,1,,,,\n",
	"kind,gpu_type,gpus,speed\nResNet,V100,2,18\nResNet,V100,1,10\nResNet,T4,1,4\n",
	"kind,other,gpu_type,gpus,speed,other_speed\nResNet,ResNet,V100,1,6,6\n",
	"kind,gpu_type,samples,seconds\nResNet,V100,32,0.06\nResNet,V100,64,0.1\n",
}

const jsonText = `{"table": "gpu_types", "name": "V100", "memory": "16 GiB", "bandwidth": "900 GB/s", "compute": 15.7e12}
{"table": "gpu_types", "name": "T4", "memory": 17179869184, "compute": null}

{"table": "machines", "name": "a", "cpus": 32, "memory": "256 GiB", "network": "10 Gbit/s", "gpu_type": "V100", "gpus": 2}
{"name": "b", "table": "machines", "cpus": 16, "memory": "128 GiB"}
{"table": "gpus", "name": "b/t4", "type": "T4", "machine": "b", "utilization": 0.35, "temperature": 61}
{"table": "kinds", "name": "ResNet", "class": "learning", "gpu_memory": "8 GiB", "save": 0.5, "load": 2, "batch": 64}
{"table": "jobs", "name": "first", "kind": "ResNet", "arrival": 0, "work": 1000, "gpus": 2, "cpus": 4, "memory": "16 GiB", "network": "1 Gbit/s", "priority": 0.5}
{"table": "jobs", "name": "second", "kind": "ResNet", "arrival": 90, "work": 500, "gpus": 1}
{"table": "speeds", "kind": "ResNet", "gpu_type": "V100", "gpus": 1, "speed": 10}
{"table": "speeds", "kind": "ResNet", "gpu_type": "V100", "gpus": 2, "speed": 18}
{"table": "speeds", "kind": "ResNet", "gpu_type": "T4", "gpus": 1, "speed": 4}
{"table": "pairs", "kind": "ResNet", "other": "ResNet", "gpu_type": "V100", "gpus": 1, "speed": 6, "other_speed": 6}
{"table": "curves", "kind": "ResNet", "gpu_type": "V100", "samples": 32, "seconds": 0.06}
{"table": "curves", "kind": "ResNet", "gpu_type": "V100", "samples": 64, "seconds": 0.1}
`

func TestFormatsAgree(t *testing.T) {
	want, err := Read(source("c.toml", TOML, "", tomlText))
	if err != nil {
		t.Fatal(err)
	}
	var tables []Source
	for i, s := range csvSources {
		s.Reader = strings.NewReader(csvTexts[i])
		tables = append(tables, s)
	}
	slices.Reverse(tables) // the order of sources does not matter
	for name, sources := range map[string][]Source{
		"CSV": tables, "JSON lines": {source("c.jsonl", JSONLines, "", jsonText)}} {
		got, err := Read(sources...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got.JobPlace, want.JobPlace = nil, nil
		// %v prints NaN as text; NaN values do not equal each other.
		if g, w := fmt.Sprintf("%+v %+v %+v", got.Cluster, got.Workload, *got.Speeds),
			fmt.Sprintf("%+v %+v %+v", want.Cluster, want.Workload, *want.Speeds); g != w {
			t.Errorf("%s:\ngot  %s\nwant %s", name, g, w)
		}
	}
}

func TestMissingFiguresAreMarkedAndOnlyTheUserFillsThem(t *testing.T) {
	d, err := Read(source("c.toml", TOML, "", tomlText))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range d.Missing() {
		got = append(got, fmt.Sprintf("%s.%s %d/%d %s %v", m.Table, m.Column, m.Rows, m.Of, m.First, m.Needed))
	}
	want := []string{"gpu_types.bandwidth 1/2 T4 false", "gpu_types.compute 1/2 T4 false",
		"machines.network 1/2 b false", "gpus.utilization 2/3 a/0 false",
		"gpus.temperature 2/3 a/0 false", "jobs.cpus 1/2 second true", "jobs.memory 1/2 second true",
		"jobs.network 1/2 second true", "jobs.priority 1/2 second true"}
	if !slices.Equal(got, want) {
		t.Errorf("missing: got %q, want %q", got, want)
	}
	if err := d.Check(); err == nil || !strings.Contains(err.Error(), `jobs.cpus: missing in 1 of 2 rows (first: "second"); the simulator needs this figure: add the figure to the source, or give a default: --default jobs.cpus=NUMBER`) {
		t.Errorf("check: got %v", err)
	}
	cpus, err := ParseDefault("jobs.cpus = 8")
	if err != nil {
		t.Fatal(err)
	}
	filled := d.Fill(append(Unlimited(), cpus))
	if len(filled) != 4 || filled[0].Column != "cpus" || d.Workload.Jobs[1].CPUs != 8 || d.Workload.Jobs[0].CPUs != 4 ||
		d.Workload.Jobs[1].Priority != 0 {
		t.Errorf("filled: got %v, jobs %+v", filled, d.Workload.Jobs)
	}
	if err := d.Check(); err != nil {
		t.Errorf("check after the defaults: got %v", err)
	}
	policy, err := scheduler.New("fcfs", scheduler.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := simulate.Run(policy, &d.Cluster, &d.Workload, d.Speeds, simulate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Jobs[0].Finish; math.Abs(got-1000.0/18) > 1e-9 {
		t.Errorf("end of the first job: got %v s, want 1000 steps at 18 steps/s", got)
	}
	for _, text := range []string{"jobs.cpus", "cpus=1", "jobs.work=1", "jobs.cpus=-1", "jobs.memory=4 GB/s",
		"jobs.priority=2", "gpus.memory=1"} {
		if _, err := ParseDefault(text); err == nil {
			t.Errorf("default %q: got no error", text)
		}
	}
}

func TestQuantity(t *testing.T) {
	for _, c := range []struct {
		text string
		d    Dimension
		want float64
	}{
		{"16 GiB", Bytes, 16 << 30}, {"16GB", Bytes, 16e9}, {" 1e3 ", Bytes, 1000}, {"1.5e-3 s", Seconds, 0.0015},
		{"2 h", Seconds, 7200}, {"10 Gbit/s", ByteRate, 1.25e9},
		{"35 %", Fraction, 0.35}, {"35%", Fraction, 0.35}, {"61 °C", Celsius, 61}, {"-4 C", Celsius, -4},
		{"120 steps/min", StepRate, 2}, {"15.7 TFLOPS", FLOPRate, 15.7e12}, {".5", Count, 0.5},
	} {
		if got, err := Quantity(c.text, c.d); err != nil || math.Abs(got-c.want) > 1e-12*math.Abs(c.want) {
			t.Errorf("%q: got %v, %v, want %v", c.text, got, err, c.want)
		}
	}
	for _, c := range []struct {
		text string
		d    Dimension
	}{{"16 GB", ByteRate}, {"16 gb", Bytes}, {"1 GB", Count}, {"GB", Bytes}, {"", Bytes}, {"NaN", Count},
		{"Inf", Count}, {"0x10", Count}, {"1_000", Count}, {"1 2", Count}, {"1e999", Count}, {"1e308 TB", Bytes},
		{"1,5 GB", Bytes}} {
		if got, err := Quantity(c.text, c.d); err == nil {
			t.Errorf("%q: got %v, want an error", c.text, got)
		}
	}
}

func TestFormatOf(t *testing.T) {
	for name, want := range map[string]Format{"a.toml": TOML, "b/c.CSV": CSV, "x.jsonl": JSONLines,
		"x.ndjson": JSONLines, "x.json": "", "toml": ""} {
		if got, err := FormatOf(name); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
}

func TestColumnsAreDocumented(t *testing.T) {
	for _, table := range Tables() {
		for _, c := range Columns(table) {
			if c.About == "" || c.Least > c.Most {
				t.Errorf("%s.%s: got %+v, want a description and a range", table, c.Name, c)
			}
		}
	}
	if Columns("x") != nil {
		t.Error("columns of an unknown table: got some")
	}
}

// A gang of four runs on two GPUs of each of two types. Check must name each speed that the gang needs and that is
// missing. It must not name speeds that cannot be measured on this cluster.
func TestGangsOnSeveralTypesNeedOnlyFiguresThatCanBeMeasured(t *testing.T) {
	const text = `{"table": "gpu_types", "name": "A", "memory": "16 GiB"}
{"table": "gpu_types", "name": "B", "memory": "16 GiB"}
{"table": "machines", "name": "a", "cpus": 32, "memory": "256 GiB", "network": "10 Gbit/s", "gpu_type": "A", "gpus": 2}
{"table": "machines", "name": "b", "cpus": 32, "memory": "256 GiB", "network": "10 Gbit/s", "gpu_type": "B", "gpus": 2}
{"table": "kinds", "name": "k", "class": "learning", "gpu_memory": "9 GiB", "save": 5, "load": 15, "batch": 32}
{"table": "jobs", "name": "j", "kind": "k", "arrival": 0, "work": 100, "gpus": 4, "cpus": 1, "memory": "1 GiB", "network": 0, "priority": 0.5}
{"table": "speeds", "kind": "k", "gpu_type": "A", "gpus": 1, "speed": 10}
{"table": "speeds", "kind": "k", "gpu_type": "A", "gpus": 2, "speed": 19}
{"table": "speeds", "kind": "k", "gpu_type": "B", "gpus": 1, "speed": 5}
{"table": "speeds", "kind": "k", "gpu_type": "B", "gpus": 2, "speed": 9}
{"table": "curves", "kind": "k", "gpu_type": "A", "samples": 16, "seconds": 0.05}
{"table": "curves", "kind": "k", "gpu_type": "A", "samples": 64, "seconds": 0.2}
{"table": "curves", "kind": "k", "gpu_type": "B", "samples": 16, "seconds": 0.1}
{"table": "curves", "kind": "k", "gpu_type": "B", "samples": 64, "seconds": 0.4}
`
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{`, "batch": 32`, "", "no batch"},
		{`{"table": "curves", "kind": "k", "gpu_type": "B", "samples": 16, "seconds": 0.1}` + "\n" +
			`{"table": "curves", "kind": "k", "gpu_type": "B", "samples": 64, "seconds": 0.4}` + "\n", "",
			`on 4 GPUs of several types: it lacks a curve of type "B"`},
		{`{"table": "speeds", "kind": "k", "gpu_type": "B", "gpus": 1, "speed": 5}` + "\n", "",
			`on 4 GPUs of several types: it lacks a speed on 1 GPU of type "B"`},
		{
			`{"table": "kinds"`,
			`{"table": "machines", "name": "c", "cpus": 0, "memory": "256 GiB", "gpu_type": "A", "gpus": 2}` + "\n" +
				`{"table": "kinds"`, `it lacks a speed on 4 GPUs of several machines of type "A"`},
	} {
		d, err := Read(source("a.jsonl", JSONLines, "", strings.Replace(text, c.old, c.new, 1)))
		if err == nil {
			err = d.CheckStated()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("without %s: got %v, want %q", c.old, err, c.want)
		}
	}
}
