package devices

import (
	"fmt"
	"strings"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/profiler/hardware"
)

// KnownCard returns the description of a device's GPU, or nil if the device is not a GPU. If NVML does not list the
// GPU, for example in a container without the driver's tools, the description comes from CUDA.
func KnownCard(info device.Info, gpus *hardware.GPUs) *hardware.GPU {
	gpu, err := CardOf(info, gpus)
	if err != nil {
		gpu = &hardware.GPU{Name: info.Model, Vendor: hardware.Nvidia, MemoryBytes: info.MemoryBytes, BusID: info.BusID,
			MIG: strings.HasPrefix(info.UUID, "MIG-")}
	}
	if gpu != nil {
		gpu.UUID = info.UUID // the UUID of the MIG slice, if the device is a slice
	}
	return gpu
}

// CardOf returns NVML's description of a device's GPU, or nil if the device is not a GPU.
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
