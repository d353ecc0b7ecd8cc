package ingest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

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

// Any source of a few megabytes must be read or refused within seconds.
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

// unknownKinds returns n kinds, and n jobs whose kinds are not among them.
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
		"gpus = 1\n\n[[speeds]]":                           "", // control case: this source is accepted
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
