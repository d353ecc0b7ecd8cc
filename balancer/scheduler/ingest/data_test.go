package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

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

// The same cluster and jobs as CSV and JSON lines.
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
		// %v prints NaN, which does not equal itself.
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

func TestFaultsNameFileLineGotAndWant(t *testing.T) {
	type lines = []string
	for _, c := range []struct {
		name    string
		sources []Source
		want    lines
	}{
		{"several faults in several files", []Source{
			source("m.csv", CSV, Machines, "name,cpus,memory\na,many,4 GiB\na2,-1,16\na3,4,4 GB/s\n"),
			source("j.csv", CSV, Jobs,
				"name,kind,arrival,work,gpus,priority\nx,k,-1,10,1,0.5\ny,k,0,0,1,0.5\nz,k,0,1,1.5,7\n,k,0,1,1,1\n"),
		}, lines{
			`m.csv:2: machine "a": cpus: got "many", want a number without a unit from 0 to 65536`,
			`m.csv:3: machine "a2": cpus: got "-1"`,
			`m.csv:3: machine "a2": memory: got "16", which is 16 B, want at least 1.048576e+06 B, or 0: is the unit missing?`,
			`m.csv:4: machine "a3": memory: got "4 GB/s", want a number in B, or a number with one of the units B, kB, MB`,
			`j.csv:2: job "x": arrival: got "-1"`, `j.csv:3: job "y": work: got "0"`,
			`j.csv:4: job "z": gpus: got "1.5", want an integer from 1 to 65536`,
			`j.csv:4: job "z": priority: got "7", want a number without a unit from 0 to 1`,
			`j.csv:5: job: name: got none, want a text`,
		}},
		{"unknown names", []Source{source("x.jsonl", JSONLines, "", `{"table": "gpu_types", "name": "V100", "memory": "16 GiB"}
{"table": "machines", "name": "a", "cpus": 1, "memory": "1 GiB", "gpu_type": "V101", "gpus": 1}
{"table": "gpus", "name": "g", "type": "V100", "machine": "aa"}
{"table": "jobs", "name": "j", "kind": "ResNet", "arrival": 1, "work": 1, "gpus": 1}
`)}, lines{
			`x.jsonl:2: machine "a": gpu_type: got "V101", want a name that a row defines; the nearest is "V100"`,
			`x.jsonl:3: gpu "g": machine: got "aa", want a name that a row defines; the nearest is "a"`,
			`x.jsonl:4: job "j": kind: got "ResNet", want a name that a row defines, but no row defines one`,
		}},
		{"order of arrival", []Source{source("x.jsonl", JSONLines, "", `{"table": "kinds", "name": "k", "class": "learning"}
{"table": "jobs", "name": "a", "kind": "k", "arrival": 5, "work": 1, "gpus": 1}
{"table": "jobs", "name": "b", "kind": "k", "arrival": 4, "work": 1, "gpus": 1}
`)}, lines{`x.jsonl:3: job "b": arrival: got 4 s after 5 s at x.jsonl:2, want jobs in the order of arrival`}},
		{"a faulty row of another table", []Source{source("x.jsonl", JSONLines, "", `{"table": "gpu_types", "name": "V100", "memory": "16 GiB"}
{"table": "machines", "name": "a", "cpus": 1, "memory": "1 GiB", "gpu_type": "V101", "gpus": 1}
{"table": "kinds", "name": "k", "class": "learning", "save": -1}
{"table": "jobs", "name": "a", "kind": "k", "arrival": 5, "work": 1, "gpus": 1}
`)}, lines{`x.jsonl:2: machine "a": gpu_type: got "V101", want a name that a row defines; the nearest is "V100"`, `x.jsonl:3: kind "k": save: got "-1"`}},
		{"names of jobs", []Source{source("k.csv", CSV, Kinds, "name,class\nk,learning\n"),
			source("a.csv", CSV, Jobs, "name,kind,arrival,work,gpus\na,k,5,1,1\n"),
			source("b.csv", CSV, Jobs, "name,kind,arrival,work,gpus\na,k,4,1,1\n")},
			lines{`b.csv:2: job "a": got a second definition, want unique names: the first definition is at a.csv:2`,
				`b.csv:2: job "a": arrival: got 4 s after 5 s at a.csv:2`}},
		{"duplicates", []Source{source("x.toml", TOML, "", "[[kinds]]\nname = \"k\"\nclass = \"learning\"\nclass = \"x\"\n[[gpu_types]]\nname=\"t\"\nmemory=\"1GiB\"\n[[gpu_types]]\nname=\"t\"\nmemory=\"1GiB\"\n")},
			lines{`x.toml:4: kind "k": class: got the column a second time`, `x.toml:8: GPU type "t": got a second definition, want unique names: the first definition is at x.toml:5`}},
		{
			"classes and tables",
			[]Source{
				source("x.toml", TOML, "",
					"a = 1\n[[kind]]\nname = \"k\"\n[jobs]\n[[kinds]]\nname = \"k\"\nclass = \"game\"\nsize = 1\n")},
			lines{`x.toml:1: key: got "a", want a table before it`,
				`x.toml:2: table: got "kind", want one of gpu_types, machines`,
				`x.toml:4: table: got "[jobs]", want double brackets`,
				`x.toml:8: column of table kinds: got "size", want one of name, class`}},
		{"an unknown class", []Source{source("k.csv", CSV, Kinds, "name,class\nk,game\n")},
			lines{`k.csv:2: kind "k": class: got "game", want one of simulation, learning, processing`}},
		{"values of another type",
			[]Source{source("x.toml", TOML, "", "[[machines]]\nname = 3\ncpus = true\nmemory = [1]\nnetwork = nan\n")},
			lines{`x.toml:2: machine: name: got "3", want a text`, `x.toml:3: machine: cpus: got "true"`,
				`x.toml:4: machine: memory: got "a list"`, `x.toml:5: machine: network: got "NaN"`}},
		{"incomplete texts", []Source{
			source("a.csv", CSV, Kinds, "name,class\nk,learn"),
			source("b.jsonl", JSONLines, "", "{\"table\": \"kinds\",\n"),
			source("c.toml", TOML, "", "[[kinds]]\nname = \"k"), source("d.jsonl", JSONLines, "", `{"table": "kinds"}`),
			source("e.csv", CSV, Kinds, ""),
		}, lines{"a.csv:2: last line: got no line end", "b.jsonl:1: line: got an incomplete object",
			"c.toml:2: not valid TOML", "d.jsonl:1: last line", "e.csv:1: header: got none"}},
		{
			"invalid CSV", []Source{source("a.csv", CSV, Kinds, "name,class\n\"k,learning\n"),
				source("b.csv", CSV, Kinds, "name,class,name,other\n"), source("c.csv", CSV, "kind", "name\n"),
				source("d.csv", CSV, Kinds, "name,class\nk\n")},
			lines{"a.csv:", "not valid CSV", `b.csv:1: column of table kinds: got "name" a second time`,
				`b.csv:1: column of table kinds: got "other"`, `c.csv: table: got "kind"`,
				"d.csv:2: fields: got 1, want 2"}},
		{"invalid JSON lines",
			[]Source{source("a.jsonl", JSONLines, "", "[1]\n{\"table\": 3}\n{\"name\": 1}\n{} {}\n")},
			lines{"a.jsonl:1: line: got [", `a.jsonl:2: table: got "3"`, "a.jsonl:3: table: got none",
				"a.jsonl:4: line: got { after the JSON object"}},
		{"speeds", []Source{source("x.toml", TOML, "", tomlText+"[[speeds]]\nkind=\"ResNet\"\ngpu_type=\"T4\"\ngpus=1\nspeed=3\n[[curves]]\nkind=\"ResNet\"\ngpu_type=\"V100\"\nsamples=64\nseconds=1\n[[pairs]]\nkind=\"ResNet\"\nother=\"x\"\ngpu_type=\"V100\"\ngpus=1\nspeed=1\nother_speed=1\n")},
			lines{`speed of "ResNet": got a second row`, "got 64 samples after 64, want ascending",
				`pair: other: got "x"`}},
		{
			"a curve without a batch",
			[]Source{source("x.toml", TOML, "", strings.Replace(tomlText, "batch = 64\n", "", 1))},
			lines{`curve of kind "ResNet": got no batch`}},
		{"nothing", []Source{source("x.toml", TOML, "", "# nothing\n")}, lines{"x.toml: rows: got none"}},
		{"bytes that are no text", []Source{source("x.toml", TOML, "", "[[kinds]]\nname = \"\xff\"\n")},
			lines{"x.toml:2: text: got bytes that are not UTF-8"}},
	} {
		_, err := Read(c.sources...)
		var faulty *Error
		if !errors.As(err, &faulty) {
			t.Errorf("%s: got %v, want faults", c.name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s:\ngot\n%v\nwant %s", c.name, err, want)
			}
		}
	}
}

// A source of a few megabytes must not take minutes, independent of its content.
func TestHostileSourcesAreRefusedSoon(t *testing.T) {
	many := strings.Repeat("a,", 2_000_000)
	for name, c := range map[string]struct {
		source Source
		says   string
	}{
		"a header with millions of columns": {Source{Format: CSV, Table: Kinds, Reader: strings.NewReader(many + "\n")},
			"got 2000001 columns, want at most"},
		"a row with many cells": {
			Source{Format: JSONLines,
				Reader: strings.NewReader(`{"table": "kinds"` + strings.Repeat(`, "name": "x"`, 200_000) + "}\n")},
			"got 200000 cells, want at most one for each of the"},
		"jobs of unknown kinds": {Source{Format: JSONLines, Reader: strings.NewReader(unknownKinds(3000))},
			"and 2900 more faults"},
		"a speed that no job has": {
			Source{Format: CSV, Table: Speeds, Reader: strings.NewReader("kind,gpu_type,gpus,speed\nk,t,1,1e-320\n")},
			"want at least 1e-09 steps/s, or 0"},
	} {
		t.Run(name, func(t *testing.T) {
			c.source.Name = "f"
			began := time.Now()
			_, err := Read(c.source)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %.300v, want %q", err, c.says)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// unknownKinds returns n kinds, and n jobs of other kinds.
func unknownKinds(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"table\": \"kinds\", \"name\": \"%s%d\", \"class\": \"learning\"}\n",
			strings.Repeat("k", 90), i)
	}
	for i := range n {
		fmt.Fprintf(&b,
			"{\"table\": \"jobs\", \"name\": \"j%d\", \"kind\": \"%s%d\", \"arrival\": 0, \"work\": 1, \"gpus\": 1}\n",
			i, strings.Repeat("x", 90), i)
	}
	return b.String()
}

func TestFaultsAreInTheOrderOfSourcesAndLinesAndComplete(t *testing.T) {
	_, err := Read(
		source("b.toml", TOML, "", "[[kind]]\nname = \"k\"\n[[machines]]\n[[gpu_types]]\nname = \"t\"\nmemory = \"1 GiB\"\n[[gpu_types]]\nname = \"t\"\nmemory = \"1 GiB\"\n"),
		source("a.csv", CSV, Kinds, "name,class\nk,game\n"),
	)
	var faulty *Error
	if !errors.As(err, &faulty) {
		t.Fatalf("got %v, want faults", err)
	}
	var got []string
	for _, f := range faulty.Faults {
		got = append(got, fmt.Sprintf("%s:%d %s", f.Source, f.Line, f.What))
	}
	want := []string{"b.toml:1 table", "b.toml:3 machine: name", "b.toml:3 machine: cpus", "b.toml:3 machine: memory",
		`b.toml:7 GPU type "t"`, `a.csv:2 kind "k": class`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestJobsThatNoMachineCanHoldAreNamedWithTheirLine(t *testing.T) {
	for change, want := range map[string]string{
		"gpus = 1\n\n[[speeds]]":                           "", // the control
		"gpus = 4\n\n[[speeds]]":                           "it needs 4 GPUs, but at most 2 GPUs of one type can hold it",
		"gpus = 1\ncpus = 64\n\n[[speeds]]":                "CPU cores",
		"gpus = 1\nmemory = \"1 TiB\"\n\n[[speeds]]":       "1024 GiB of memory for each GPU",
		"gpus = 2\nnetwork = \"1 GB/s\"\n\n[[speeds]]":     "",
		"gpus = 1\npriority = 1\n\n[[speeds]]":             "",
		"gpus = 2\ncpus = 1\nmemory = 0\n\n[[speeds]]":     "",
		"gpus = 65536\ncpus = 1\nmemory = 0\n[[speeds]]\n": "it needs 65536 GPUs",
	} {
		d, err := Read(source("c.toml", TOML, "", strings.Replace(tomlText, "gpus = 1\n\n[[speeds]]", change, 1)))
		if err != nil {
			t.Fatal(err)
		}
		d.Fill(Unlimited())
		err = d.Check()
		var unplaceable *scheduler.UnplaceableError
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: got %v", change, err)
		case want != "" && (!errors.As(err, &unplaceable) || unplaceable.Job != 1 ||
			!strings.HasPrefix(err.Error(), "c.toml:51: ") || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: got %v, want an error at c.toml:51 with %q", change, err, want)
		}
	}
}

func TestCheckNeedsJobsAndSpeedsOfThisCluster(t *testing.T) {
	read := func(text string) *Data {
		d, err := Read(source("c.toml", TOML, "", text))
		if err != nil {
			t.Fatal(err)
		}
		d.Fill(Unlimited())
		return d
	}
	d := read(tomlText)
	d.Speeds = nil
	if err := d.Check(); err == nil || !strings.Contains(err.Error(), "speeds: got none") {
		t.Errorf("without speeds: got %v", err)
	}
	d = read(tomlText)
	d.Cluster.Types = append(d.Cluster.Types, scheduler.GPUType{Name: "x", Memory: 1, Bandwidth: 1, Compute: 1})
	if err := d.Check(); err == nil ||
		!strings.Contains(err.Error(), "got 2 types of GPUs, want the 3 types of the cluster") {
		t.Errorf("speeds of another cluster: got %v", err)
	}
	d = read(tomlText)
	d.Workload.Jobs = nil
	if err := d.Check(); err == nil || !strings.Contains(err.Error(), "jobs: got none") {
		t.Errorf("without jobs: got %v", err)
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

// checkRead checks that data which Read accepts contain known names, numbers in their ranges, and jobs in order.
func checkRead(t *testing.T, s Source) {
	d, err := Read(s)
	if err != nil {
		var faulty *Error
		if errors.As(err, &faulty) && (len(faulty.Faults) == 0 || len(faulty.Faults) > maxFaults) {
			t.Fatalf("got %d faults", len(faulty.Faults))
		}
		return
	}
	d.Fill(append(Unlimited(), Default{Machines, "cpus", 1}, Default{Machines, "memory", 1}))
	if err := errors.Join(d.Cluster.Check(), d.Workload.Check()); err != nil && len(d.Cluster.GPUs) > 0 {
		t.Fatalf("Read accepts what Check refuses: %v", err)
	}
	d.Check()
}

func FuzzTOML(f *testing.F) {
	f.Add([]byte(tomlText))
	f.Add([]byte("[[jobs]]\nname = \"\"\"x\ny\"\"\"\n[[jobs]]\nwork = 0x10\narrival = 1979-05-27\n"))
	f.Add([]byte("[[a.b]]\nx.y = {z = [1, 2]}\n[q]\n"))
	f.Add([]byte(tomlText[:300]))
	f.Fuzz(func(t *testing.T, text []byte) { checkRead(t, Source{"f", TOML, "", bytes.NewReader(text)}) })
}

func FuzzCSV(f *testing.F) {
	for i, text := range csvTexts {
		f.Add(i, []byte(text))
	}
	f.Add(4, []byte("name,kind\n\"a\"\"b\",\"x\ny\"\n"))
	f.Fuzz(func(t *testing.T, table int, text []byte) {
		names := Tables()
		checkRead(t, Source{"f", CSV, names[((table%len(names))+len(names))%len(names)], bytes.NewReader(text)})
	})
}

func FuzzJSONLines(f *testing.F) {
	f.Add([]byte(jsonText))
	f.Add([]byte("{\"table\": \"jobs\", \"table\": 1, \"work\": 1e999, \"gpus\": {\"a\": [null]}}\n"))
	f.Add([]byte(jsonText[:400]))
	f.Fuzz(func(t *testing.T, text []byte) { checkRead(t, Source{"f", JSONLines, "", bytes.NewReader(text)}) })
}

func FuzzQuantity(f *testing.F) {
	f.Add("16 GiB", 1)
	f.Add("-1e308 %", 6)
	f.Add("1.e5°C", 5)
	f.Fuzz(func(t *testing.T, text string, d int) {
		x, err := Quantity(text, Dimension(((d%dimensions)+dimensions)%dimensions))
		if err == nil && (math.IsNaN(x) || math.IsInf(x, 0)) {
			t.Fatalf("%q: got %v", text, x)
		}
	})
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

// A gang of four runs on two GPUs of each of two types. Check must name each number that is missing for it, and no
// number that cannot be measured.
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
