//go:build !linux

package system

import (
	"runtime"

	"github.com/hetero-train/hetero-train/engine/platform"
)

// Detect describes this machine: name, kernel, CPUs and memory. If a part cannot be read, it returns the other parts
// together with an error.
func Detect() (Host, error) {
	m, err := platform.Describe()
	n := runtime.NumCPU()
	return Host{Name: m.Name, Kernel: m.Kernel, Cgroups: "none",
		CPU:    CPU{Model: m.CPU, Cores: m.Cores, Threads: n, Usable: n, Quota: float64(n)},
		Memory: Memory{Total: m.MemoryBytes, Available: m.AvailableBytes, Limit: m.MemoryBytes}}, err
}
