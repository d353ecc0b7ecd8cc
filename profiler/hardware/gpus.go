package hardware

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// GPUs contains the GPUs of this machine.
type GPUs struct {
	list     []GPU
	reason   string
	warnings []string
	driver   driver // nil if there is no driver
}

// driver is the interface to the library of a vendor.
type driver interface {
	// sample sets the known values of a GPU. If processes is true, it also counts the processes on the GPU.
	sample(g *GPU, processes bool, s *telemetry.Sample) error
	links(g *GPU, each bool) LinkSource // the source of the GPU's links; see GPUs.LinkSource
	close()
}

// None returns an empty GPUs with the reason why there is no GPU.
func None(reason string) *GPUs { return &GPUs{reason: reason} }

// All returns the GPUs, sorted by index. The caller owns the slice.
func (g *GPUs) All() []GPU { return slices.Clone(g.list) }

// Reason returns the reason why there is no GPU, or "" if there are GPUs.
func (g *GPUs) Reason() string { return g.reason }

// Warnings returns errors that concern single GPUs.
func (g *GPUs) Warnings() []string { return slices.Clone(g.warnings) }

// Close unloads the library of the driver. The caller must close all probes first.
func (g *GPUs) Close() {
	if g.driver != nil {
		g.driver.close()
		g.driver = nil
	}
}

// At returns the GPU at a bus address. It accepts the formats of CUDA and NVML, such as "0000:65:00.0" and
// "00000000:65:00.0". CUDA's indices cannot be used, because CUDA sorts GPUs by speed by default, and
// CUDA_VISIBLE_DEVICES hides GPUs. All instances (MIG) of a GPU have the address of the GPU.
func (g *GPUs) At(busID string) (GPU, error) {
	place := func(id string) string { return strings.TrimLeft(strings.ToLower(id), "0") }
	i := slices.IndexFunc(g.list, func(gpu GPU) bool { return busID != "" && place(gpu.BusID) == place(busID) })
	if i < 0 {
		return GPU{}, fmt.Errorf("NVML has no GPU with bus id %q; it has %d other GPUs%s", busID, len(g.list),
			because(g.reason))
	}
	return g.list[i], nil
}
