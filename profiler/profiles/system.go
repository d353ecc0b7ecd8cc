package profiles

import (
	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/measure"
	"github.com/hetero-train/hetero-train/profiler/system"
)

// System is the contents of system_profile.json.
type System struct {
	Origin
	Hosts     []Host               `json:"hosts"`
	Links     []measure.Link       `json:"links,omitempty"`      // links between ranks
	AllReduce []measure.AllReduced `json:"all_reduce,omitempty"` // all-reduces over all ranks
	Skipped   []string             `json:"skipped,omitempty"`
}

// Host describes one machine, as measured by its first rank.
type Host struct {
	Name        string         `json:"name"`
	Ranks       []int          `json:"ranks"`
	Kernel      string         `json:"kernel"`
	WSL2        bool           `json:"wsl2"`
	Container   string         `json:"container,omitempty"`
	Cgroups     string         `json:"cgroups"`
	CPU         CPU            `json:"cpu"`
	Memory      Memory         `json:"memory"`
	GPUs        []hardware.GPU `json:"gpus"`
	NoGPU       string         `json:"no_gpu,omitempty"` // reason why there is no GPU
	Disks       []Disk         `json:"disks"`
	Networks    []Network      `json:"networks"`
	TriadGBytes measure.Figure `json:"memory_triad_gbytes_per_second"`
	Output      *Output        `json:"output,omitempty"`
}

// CPU describes the processors of a host.
type CPU struct {
	Model    string   `json:"model"`
	Vendor   string   `json:"vendor"`
	Sockets  int      `json:"sockets"`
	Cores    int      `json:"cores"`
	Threads  int      `json:"threads"`
	Features []string `json:"features"`
	Usable   int      `json:"usable"` // number of logical CPUs that the affinity mask allows
	Quota    float64  `json:"quota"`  // CPU time per second that the process may use
}

// Memory describes the memory of a host, in bytes.
type Memory struct {
	Total     int64 `json:"total_bytes"`
	Available int64 `json:"available_bytes"`
	Limit     int64 `json:"limit_bytes"` // memory that the process may use
}

// Disk describes a disk of a host.
type Disk struct {
	Name  string `json:"name"`
	Model string `json:"model,omitempty"`
	Kind  string `json:"kind"`
	Bytes int64  `json:"bytes"`
}

// Network describes a network interface of a host.
type Network struct {
	Name       string `json:"name"`
	Kind       string `json:"kind"`
	Up         bool   `json:"up"`
	SpeedMbits int    `json:"speed_mbits_per_second,omitempty"` // absent if unknown
	MTU        int    `json:"mtu"`
}

// Output describes the disk that contains the results folder.
type Output struct {
	Folder string `json:"folder"`
	measure.DiskSpeed
}

// Describe converts the description of a host from package system. noGPU is the reason why there is no GPU.
func Describe(h system.Host, gpus []hardware.GPU, noGPU string) Host {
	out := Host{Name: h.Name, Kernel: h.Kernel, WSL2: h.WSL2, Container: h.Container, Cgroups: h.Cgroups,
		CPU: CPU(h.CPU), Memory: Memory(h.Memory),
		GPUs: append([]hardware.GPU{}, gpus...), NoGPU: noGPU, Disks: []Disk{}, Networks: []Network{}}
	for _, d := range h.Disks {
		out.Disks = append(out.Disks, Disk(d))
	}
	for _, n := range h.Networks {
		out.Networks = append(out.Networks, Network(n))
	}
	return out
}
