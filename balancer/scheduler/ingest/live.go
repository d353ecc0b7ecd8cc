package ingest

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// LiveGPU is a GPU that a program found, with its telemetry. Unknown numbers are NaN.
type LiveGPU struct {
	Machine     string
	Name        string  // unique on its machine
	Model       string  // GPUs of one model and memory are one type
	Memory      float64 // bytes
	Bandwidth   float64 // bytes/s
	Compute     float64 // FLOP/s
	Utilization float64 // fraction
	Temperature float64 // degrees Celsius
}

// LiveMachine is a machine that a program found. Unknown numbers are NaN.
type LiveMachine struct {
	Name    string
	CPUs    float64 // cores
	Memory  float64 // bytes
	Network float64 // bytes/s
}

// Live creates a cluster from machines and GPUs that a program found. Bandwidth and compute of a type are the medians
// of its GPUs. A GPU on a machine that is not in the list, a repeated name, and an invalid number are errors.
func Live(machines []LiveMachine, gpus []LiveGPU) (*Data, error) {
	d := new(Data)
	c := &d.Cluster
	var f faults
	for _, m := range machines {
		if m.Name == "" || slices.ContainsFunc(c.Machines, func(o scheduler.Machine) bool { return o.Name == m.Name }) {
			f.add("machines", 0, "name of a machine", quote(m.Name), "unique names that are not empty")
			continue
		}
		c.Machines = append(c.Machines, scheduler.Machine{Name: m.Name, CPUs: m.CPUs, Memory: m.Memory,
			Network: m.Network})
	}
	type key struct {
		model  string
		memory float64
	}
	var types []key
	members := map[int][]int{} // by type: indices into gpus
	for i, g := range gpus {
		machine := slices.IndexFunc(c.Machines, func(m scheduler.Machine) bool { return m.Name == g.Machine })
		if machine < 0 {
			f.add("GPUs", 0, "machine of GPU "+quote(g.Name), quote(g.Machine), "a machine of the list")
			continue
		}
		name := g.Machine + "/" + g.Name
		if g.Name == "" || slices.ContainsFunc(c.GPUs, func(o scheduler.GPU) bool { return o.Name == name }) {
			f.add("GPUs", 0, "name of a GPU", quote(name), "unique names that are not empty")
			continue
		}
		if g.Model == "" || !(g.Memory > 0) || math.IsInf(g.Memory, 0) {
			f.add("GPUs", 0, "GPU "+quote(name), fmt.Sprintf("model %s with %v bytes", quote(g.Model), g.Memory),
				"a model, and a finite memory above 0 bytes")
			continue
		}
		k := key{g.Model, g.Memory}
		typ := slices.Index(types, k)
		if typ < 0 {
			typ = len(types)
			types = append(types, k)
		}
		members[typ] = append(members[typ], i)
		c.Machines[machine].GPUs = append(c.Machines[machine].GPUs, len(c.GPUs))
		c.GPUs = append(c.GPUs, scheduler.GPU{Name: name, Type: typ, Machine: machine, Utilization: g.Utilization,
			Temperature: g.Temperature})
	}
	for typ, k := range types {
		name := k.model
		if slices.ContainsFunc(types, func(o key) bool { return o.model == k.model && o.memory != k.memory }) {
			name += fmt.Sprintf(" %.3g GiB", k.memory/(1<<30))
		}
		t := scheduler.GPUType{Name: name, Memory: k.memory}
		t.Bandwidth = median(members[typ], func(i int) float64 { return gpus[i].Bandwidth })
		t.Compute = median(members[typ], func(i int) float64 { return gpus[i].Compute })
		c.Types = append(c.Types, t)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return d, d.checkKnown()
}

// checkKnown checks the known numbers of a cluster.
func (d *Data) checkKnown() error {
	known := d.Cluster
	known.Machines = slices.Clone(known.Machines)
	for i := range known.Machines {
		m := &known.Machines[i]
		if math.IsNaN(m.CPUs) {
			m.CPUs = 0
		}
		if math.IsNaN(m.Memory) {
			m.Memory = 0
		}
	}
	return known.Check()
}

// median returns the median of the known numbers, or NaN if no number is known.
func median(list []int, figure func(int) float64) float64 {
	var known []float64
	for _, i := range list {
		if x := figure(i); !math.IsNaN(x) {
			known = append(known, x)
		}
	}
	if len(known) == 0 {
		return math.NaN()
	}
	slices.Sort(known)
	n := len(known)
	return known[(n-1)/2]/2 + known[n/2]/2
}

// profileSchema is the newest version of the files of `hetero-train profile` that Profile reads.
const profileSchema = 2

// profileRanks contains the parts of gpu_profiles.json that Profile uses. A number that was not measured is null or 0.
type profileRanks struct {
	SchemaVersion int `json:"schema_version"`
	Ranks         []struct {
		Host   string `json:"host"`
		Device struct {
			Name  string `json:"name"`
			Model string `json:"model"`
		} `json:"device"`
		GPU *struct {
			Name        string  `json:"name"`
			MemoryBytes float64 `json:"memory_bytes"`
			Temperature float64 `json:"temperature_celsius"`
		} `json:"gpu"`
		MemoryBytes float64 `json:"memory_bytes"`
		Measured    struct {
			TFLOPS float64 `json:"tflops"`
			Memory struct {
				Copy float64 `json:"copy_gbytes_per_second"`
			} `json:"memory"`
		} `json:"measured"`
	} `json:"ranks"`
}

// profileSystem contains the parts of system_profile.json that Profile uses.
type profileSystem struct {
	SchemaVersion int `json:"schema_version"`
	Hosts         []struct {
		Name string `json:"name"`
		CPU  struct {
			Usable float64 `json:"usable"`
			Quota  float64 `json:"quota"`
		} `json:"cpu"`
		Memory struct {
			Total float64 `json:"total_bytes"`
			Limit float64 `json:"limit_bytes"`
		} `json:"memory"`
		Networks []struct {
			Kind  string  `json:"kind"`
			Up    bool    `json:"up"`
			Speed float64 `json:"speed_mbits_per_second"`
		} `json:"networks"`
	} `json:"hosts"`
}

// Profile creates a cluster from the two files that `hetero-train profile` writes. Each rank is a GPU, even a rank that
// computes on the CPU. gpu_profiles.json gives the model, the memory, the measured memory bandwidth and the measured
// arithmetic; system_profile.json gives the CPU cores, the memory and the fastest network interface of each machine. If
// system is nil, the numbers of machines are missing. Utilizations and the temperatures of CPUs are always missing.
func Profile(ranksName string, ranks io.Reader, systemName string, system io.Reader) (*Data, error) {
	var p profileRanks
	if err := profileFile(ranksName, ranks, &p, &p.SchemaVersion); err != nil {
		return nil, err
	}
	var f faults
	if len(p.Ranks) == 0 {
		f.add(ranksName, 0, "ranks", "none", "at least one: run hetero-train profile again")
	}
	var s profileSystem
	if system != nil {
		if err := profileFile(systemName, system, &s, &s.SchemaVersion); err != nil {
			return nil, err
		}
	}
	var machines []LiveMachine
	for _, h := range s.Hosts {
		m := LiveMachine{Name: h.Name, CPUs: measured(h.CPU.Quota), Memory: measured(h.Memory.Limit),
			Network: math.NaN()}
		if math.IsNaN(m.CPUs) {
			m.CPUs = measured(h.CPU.Usable)
		}
		if math.IsNaN(m.Memory) {
			m.Memory = measured(h.Memory.Total)
		}
		for _, n := range h.Networks {
			if speed := n.Speed * 1e6 / 8; n.Up && speed > 0 && n.Kind != "loopback" && !(m.Network >= speed) {
				m.Network = speed
			}
		}
		machines = append(machines, m)
	}
	var gpus []LiveGPU
	for i, r := range p.Ranks {
		if !slices.ContainsFunc(machines, func(m LiveMachine) bool { return m.Name == r.Host }) {
			if system != nil {
				f.add(ranksName, 0, fmt.Sprintf("rank %d: host", i), quote(r.Host),
					"a host of "+systemName+": both files must be of one run")
				continue
			}
			machines = append(machines, LiveMachine{r.Host, math.NaN(), math.NaN(), math.NaN()})
		}
		g := LiveGPU{Machine: r.Host, Name: fmt.Sprintf("%d", i), Model: r.Device.Model, Memory: r.MemoryBytes,
			Bandwidth: measured(r.Measured.Memory.Copy) * 1e9, Compute: measured(r.Measured.TFLOPS) * 1e12,
			Utilization: math.NaN(), Temperature: math.NaN()}
		if r.GPU != nil {
			g.Temperature = measured(r.GPU.Temperature)
			if r.GPU.MemoryBytes > 0 {
				g.Memory = r.GPU.MemoryBytes
			}
			if strings.TrimSpace(r.GPU.Name) != "" {
				g.Model = r.GPU.Name
			}
		}
		gpus = append(gpus, g)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	d, err := Live(machines, gpus)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ranksName, err)
	}
	return d, nil
}

// measured returns a number of a profile, or NaN if it was not measured.
func measured(x float64) float64 {
	if x > 0 {
		return x
	}
	return math.NaN()
}

func profileFile(name string, r io.Reader, into any, version *int) error {
	text, err := readAll(name, r)
	if err != nil {
		return err
	}
	var f faults
	if err := json.Unmarshal(text, into); err != nil {
		f.add(name, lineOf(text, err), "not a profile", err.Error(), "a complete file of hetero-train profile")
	} else if *version < 1 || *version > profileSchema {
		f.add(name, 0, "schema_version", fmt.Sprint(*version),
			fmt.Sprintf("1 to %d: run hetero-train profile again", profileSchema))
	}
	return f.err()
}
