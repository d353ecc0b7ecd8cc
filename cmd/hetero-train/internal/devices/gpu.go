package devices

import (
	"fmt"
	"strings"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/profiler/hardware"
)

// KnownCard is the GPU behind a device, nil for a device that is none. Where NVML does not know it, as in a container without the driver's tools, it is what CUDA
// tells of it.
func KnownCard(info device.Info, gpus *hardware.GPUs) *hardware.GPU {
	gpu, err := CardOf(info, gpus)
	if err != nil {
		gpu = &hardware.GPU{Name: info.Model, Vendor: hardware.Nvidia, MemoryBytes: info.MemoryBytes, BusID: info.BusID, MIG: strings.HasPrefix(info.UUID, "MIG-")}
	}
	if gpu != nil {
		gpu.UUID = info.UUID // of the slice, where it is one
	}
	return gpu
}

// CardOf is the GPU behind a device, nil for a device that is none.
func CardOf(info device.Info, gpus *hardware.GPUs) (*hardware.GPU, error) {
	if info.Kind != "cuda" {
		return nil, nil
	}
	gpu, err := gpus.At(info.BusID)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", info.Name, err)
	}
	return &gpu, nil
}
