package hardware

import (
	"fmt"
	"slices"
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

// At is the GPU in a place on the bus, as CUDA or NVML writes it: "0000:65:00.0", "00000000:65:00.0". CUDA's numbers are of no use here: by
// default it counts the fastest first, and CUDA_VISIBLE_DEVICES leaves GPUs out. All slices of a GPU share its place.
func (g *GPUs) At(busID string) (GPU, error) {
	place := func(id string) string { return strings.TrimLeft(strings.ToLower(id), "0") }
	i := slices.IndexFunc(g.list, func(gpu GPU) bool { return busID != "" && place(gpu.BusID) == place(busID) })
	if i < 0 {
		return GPU{}, fmt.Errorf("no GPU at %q among the %d that NVML knows%s", busID, len(g.list), because(g.reason))
	}
	return g.list[i], nil
}
