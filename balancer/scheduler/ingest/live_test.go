package ingest

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
)

const ranksText = `{"schema_version": 2, "fingerprint": "x", "ranks": [
 {"rank": 0, "host": "a", "device": {"name": "cuda:0", "model": "V100"}, "gpu": {"name": "Tesla V100", "memory_bytes": 17179869184, "temperature_celsius": 41},
  "memory_bytes": 16000000000, "measured": {"tflops": 13.5, "memory": {"copy_gbytes_per_second": 800}}},
 {"rank": 1, "host": "a", "device": {"name": "cuda:1", "model": "V100"}, "gpu": {"name": "Tesla V100", "memory_bytes": 17179869184},
  "memory_bytes": 16000000000, "measured": {"tflops": 14.5, "memory": {"copy_gbytes_per_second": null}}},
 {"rank": 2, "host": "b", "device": {"name": "cpu:0", "model": "EPYC"}, "memory_bytes": 8000000000, "measured": {"tflops": null, "memory": {}}}]}
`

const systemText = `{"schema_version": 2, "fingerprint": "x", "hosts": [
 {"name": "a", "cpu": {"usable": 32, "quota": 24.5}, "memory": {"total_bytes": 300000000000, "limit_bytes": 200000000000},
  "networks": [{"kind": "loopback", "up": true, "speed_mbits_per_second": 999999}, {"kind": "ethernet", "up": true, "speed_mbits_per_second": 1000}, {"kind": "ethernet", "up": true, "speed_mbits_per_second": 10000}, {"kind": "ethernet", "up": false, "speed_mbits_per_second": 100000}]},
 {"name": "b", "cpu": {"usable": 8, "quota": 0}, "memory": {"total_bytes": 16000000000, "limit_bytes": 0}, "networks": []}]}
`

func TestProfile(t *testing.T) {
	d, err := Profile("r.json", strings.NewReader(ranksText), "s.json", strings.NewReader(systemText))
	if err != nil {
		t.Fatal(err)
	}
	c := d.Cluster
	if len(c.Types) != 2 || c.Types[0].Name != "Tesla V100" || c.Types[0].Memory != 16<<30 ||
		c.Types[0].Bandwidth != 800e9 || c.Types[0].Compute != 14e12 || !math.IsNaN(c.Types[1].Compute) {
		t.Errorf("types: got %+v", c.Types)
	}
	if m := c.Machines[0]; m.CPUs != 24.5 || m.Memory != 2e11 || m.Network != 1.25e9 ||
		!slices.Equal(m.GPUs, []int{0, 1}) {
		t.Errorf("machine a: got %+v", m)
	}
	if m := c.Machines[1]; m.CPUs != 8 || m.Memory != 16e9 || !math.IsNaN(m.Network) {
		t.Errorf("machine b: got %+v", m)
	}
	if g := c.GPUs[0]; g.Name != "a/0" || g.Temperature != 41 || !math.IsNaN(g.Utilization) {
		t.Errorf("GPU 0: got %+v", g)
	}
	d, err = Profile("r.json", strings.NewReader(ranksText), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	missing := d.Missing()
	if at := slices.IndexFunc(missing, func(m Missing) bool {
		return m.Table == Machines && m.Column == "cpus"
	}); at < 0 || missing[at].Rows != 2 || !missing[at].Needed {
		t.Errorf("without the system's file: got %v, want the CPU cores of both machines to be missing", missing)
	}
}

func TestFaultyProfilesAreErrors(t *testing.T) {
	for _, c := range []struct{ ranks, system, want string }{
		{ranksText[:300], systemText, "r.json:3: not a profile"},
		{strings.Replace(ranksText, `"schema_version": 2`, `"schema_version": 3`, 1), systemText,
			"r.json: schema_version: got 3, want 1 to 2"},
		{"{}", systemText, "schema_version: got 0"},
		{`{"schema_version": 1}`, systemText, "r.json: ranks: got none"},
		{strings.Replace(ranksText, `"host": "b"`, `"host": "c"`, 1), systemText,
			`rank 2: host: got "c", want a host of s.json`},
		{strings.Replace(ranksText, `"memory_bytes": 8000000000`, `"memory_bytes": 0`, 1), systemText,
			"finite memory above 0"},
		{strings.Replace(ranksText, `"host": "b"`, `"host": "a"`, 1),
			strings.Replace(systemText, `"name": "b"`, `"name": "a"`, 1), `name of a machine: got "a"`},
		{strings.Replace(ranksText, "13.5", `"13.5"`, 1), systemText, "not a profile"},
	} {
		if _, err := Profile("r.json", strings.NewReader(c.ranks), "s.json", strings.NewReader(c.system)); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
	}
}

func TestLive(t *testing.T) {
	nan := math.NaN()
	machines := []LiveMachine{{"a", 32, 1e11, nan}, {"b", 16, 1e11, 1e9}}
	gpus := []LiveGPU{
		{"a", "0", "T4", 16 << 30, nan, nan, 0.4, 55}, {"b", "0", "T4", 16 << 30, 3e11, nan, nan, nan},
		{"b", "1", "T4", 15 << 30, nan, nan, 0, 40},
	}
	d, err := Live(machines, gpus)
	if err != nil {
		t.Fatal(err)
	}
	c := d.Cluster
	if len(c.Types) != 2 || c.Types[0].Name != "T4 16 GiB" || c.Types[1].Name != "T4 15 GiB" ||
		c.Types[0].Bandwidth != 3e11 || !math.IsNaN(c.Types[0].Compute) {
		t.Errorf("types: got %+v", c.Types)
	}
	if c.GPUs[1].Name != "b/0" || c.GPUs[0].Utilization != 0.4 || c.GPUs[2].Type != 1 {
		t.Errorf("GPUs: got %+v", c.GPUs)
	}
	for name, change := range map[string]func(){
		"machine of GPU":    func() { gpus[0].Machine = "x" },
		"name of a GPU":     func() { gpus[2].Name = "0" },
		"name of a machine": func() { machines[1].Name = "a" },
		"memory above 0":    func() { gpus[0].Memory = nan },
		"utilization":       func() { gpus[0].Utilization = 1.5 },
	} {
		m, g := slices.Clone(machines), slices.Clone(gpus)
		change()
		if _, err := Live(machines, gpus); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
		machines, gpus = m, g
	}
}

func FuzzProfile(f *testing.F) {
	f.Add([]byte(ranksText), []byte(systemText))
	f.Add([]byte(ranksText[:200]), []byte("{}"))
	f.Add([]byte(strings.ReplaceAll(ranksText, "13.5", "1e308")),
		[]byte(strings.ReplaceAll(systemText, "10000", "1e308")))
	f.Fuzz(func(t *testing.T, ranks, system []byte) {
		d, err := Profile("r", bytes.NewReader(ranks), "s", bytes.NewReader(system))
		if err == nil && d.checkKnown() != nil {
			t.Fatalf("Profile accepts what Check refuses: %v", d.checkKnown())
		}
	})
}
