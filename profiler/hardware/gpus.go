package hardware

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/telemetry"
)

// GPUs holds the GPUs of this machine.
type GPUs struct {
	list     []GPU
	reason   string
	warnings []string
	driver   driver // nil without one
}

// driver is the interface to a vendor's library.
type driver interface {
	// sample sets the known figures of a GPU. processes requests a new count of its processes.
	sample(g *GPU, processes bool, s *telemetry.Sample) error
	close()
}

// None returns a machine without GPUs, with the reason.
func None(reason string) *GPUs { return &GPUs{reason: reason} }

// All returns the GPUs, by index. The caller owns the slice.
func (g *GPUs) All() []GPU { return slices.Clone(g.list) }

// Reason returns why there is no GPU; "" if there are some.
func (g *GPUs) Reason() string { return g.reason }

// Warnings returns the errors of single GPUs during the search.
func (g *GPUs) Warnings() []string { return slices.Clone(g.warnings) }

// Close unloads the driver's library. Close all probes first.
func (g *GPUs) Close() {
	if g.driver != nil {
		g.driver.close()
		g.driver = nil
	}
}

// At returns the GPU at a bus address, as CUDA or NVML writes it: "0000:65:00.0", "00000000:65:00.0". CUDA's numbers
// are not usable here: by default CUDA sorts by speed, and CUDA_VISIBLE_DEVICES hides GPUs. All slices of a GPU have
// its address.
func (g *GPUs) At(busID string) (GPU, error) {
	place := func(id string) string { return strings.TrimLeft(strings.ToLower(id), "0") }
	i := slices.IndexFunc(g.list, func(gpu GPU) bool { return busID != "" && place(gpu.BusID) == place(busID) })
	if i < 0 {
		return GPU{}, fmt.Errorf("no GPU at %q among the %d that NVML knows%s", busID, len(g.list), because(g.reason))
	}
	return g.list[i], nil
}
