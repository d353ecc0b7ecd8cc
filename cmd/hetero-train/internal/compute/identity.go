package compute

import (
	"fmt"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/profiles"
	"github.com/hetero-train/hetero-train/profiler/system"
)

// Describe returns the properties of this rank that need no measurement.
func (k *Rank) Describe(host system.Host, gpus *hardware.GPUs) profiles.Rank {
	info, assigned := k.Device.Info(), k.Process.Opts.Assignment
	gpu := devices.KnownCard(info, gpus)
	identity := hardware.Identify(info, host, gpu)
	// With a simulated slowdown, the balancer must treat the device as another type.
	if factor := k.Process.Opts.Lab.Setup.Slowdown; factor > 1 {
		identity.Type += fmt.Sprintf(" slowed x%.3g", factor)
	}
	r := profiles.Rank{Rank: assigned.Rank, LocalRank: max(assigned.LocalRank, 0), Host: host.Name, GPU: gpu,
		Fingerprint: identity.Fingerprint, DeviceType: identity.Type, MemoryBytes: k.MemoryBytes(),
		Device: profiles.Device{Name: info.Name, Kind: info.Kind, Vendor: hardware.CPU, Model: info.Model,
			ISA: info.ISA, Threads: info.Threads}}
	if gpu != nil {
		r.Device.Vendor = gpu.Vendor
	} else {
		r.Device.CPUs = min(host.CPU.Quota, float64(max(info.Threads, 1)))
	}
	if k.Team != nil && k.Team.Group != nil {
		r.LocalRank = k.Team.Group.Members()[assigned.Rank].LocalRank
	}
	r.Measured.DType = k.Precision.String()
	return r
}

// DescribeItself returns the properties of this rank that other ranks of the run receive.
func (k *Rank) DescribeItself() profiles.Rank {
	host, err := system.Detect()
	if err != nil {
		k.Process.Opts.Log.Debug("some properties of this machine are unknown", "error", err)
	}
	gpus := hardware.None("not requested")
	if k.Device.Info().Kind == "cuda" {
		gpus = hardware.Open()
		defer gpus.Close()
	}
	return k.Describe(host, gpus)
}
