package hardware

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// GPUs are the GPUs of this machine.
type GPUs struct {
	list     []GPU
	reason   string
	warnings []string
	driver   driver // nil without one
}

// driver is what a vendor's library answers about the GPUs it has.
type driver interface {
	// sample fills in what it knows of a GPU. processes is whether those on it are to be counted again.
	sample(g *GPU, processes bool, h *Health) error
	close()
}

// None is a machine without GPUs, for a reason.
func None(reason string) *GPUs { return &GPUs{reason: reason} }

// All are the GPUs, by index. The slice is the caller's.
func (g *GPUs) All() []GPU { return slices.Clone(g.list) }

// Reason says why there is no GPU; "" if there are some.
func (g *GPUs) Reason() string { return g.reason }

// Warnings are what went wrong with single GPUs while they were found.
func (g *GPUs) Warnings() []string { return slices.Clone(g.warnings) }

// Close unloads the driver's library. Probes end before.
func (g *GPUs) Close() {
	if g.driver != nil {
		g.driver.close()
		g.driver = nil
	}
}

// Visible tells which GPU CUDA calls by number index. visible is the environment variable CUDA_VISIBLE_DEVICES (set is whether it
// exists): numbers or UUIDs, of which one may be shortened; CUDA ignores what follows the first that does not exist. Its numbers are those of NVML
// only with CUDA_DEVICE_ORDER=PCI_BUS_ID; by default CUDA counts the fastest first, which matters where GPUs differ.
func (g *GPUs) Visible(visible string, set bool, index int) (GPU, error) {
	list := g.list
	if set {
		list = nil
		for _, name := range strings.Split(visible, ",") {
			at := g.named(strings.TrimSpace(name))
			if at < 0 {
				break
			}
			list = append(list, g.list[at])
		}
	}
	if index < 0 || index >= len(list) {
		return GPU{}, fmt.Errorf("GPU %d: this process sees %d of %d GPUs (CUDA_VISIBLE_DEVICES=%q)", index, len(list), len(g.list), visible)
	}
	return list[index], nil
}

// named finds a GPU by its number or the beginning of its UUID; -1 if there is none, or several.
func (g *GPUs) named(name string) int {
	if n, err := strconv.Atoi(name); err == nil {
		return slices.IndexFunc(g.list, func(gpu GPU) bool { return gpu.Index == n })
	}
	found := -1
	for i, gpu := range g.list {
		if name != "" && strings.HasPrefix(gpu.UUID, name) {
			if found >= 0 {
				return -1
			}
			found = i
		}
	}
	return found
}
