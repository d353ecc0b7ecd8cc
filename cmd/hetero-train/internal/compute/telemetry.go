package compute

import (
	"fmt"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/telemetry"
)

// OpenTelemetry starts to read the sensors of this rank's device, process and machine. The training loop calls the
// returned function once per step. While quiet returns true, the function reads no sensor and returns an unknown
// sample.
func (k *Rank) OpenTelemetry(quiet func() bool) func() telemetry.Sample {
	probe := k.openProbe()
	k.Later(probe.Close)
	lost := false
	return func() telemetry.Sample {
		if quiet() {
			return telemetry.Unknown()
		}
		sample, err := probe.Sample()
		if err != nil && !lost {
			lost = true
			k.Opts.LogOf(logs.ComponentProfiler).Warn("device telemetry is no longer available", "error", err)
		}
		return sample
	}
}

// openProbe returns the probe of this rank's GPU, or else of the CPU.
func (k *Rank) openProbe() *hardware.Probe {
	if k.Device.Info().Kind != "cuda" {
		return hardware.ProbeCPU()
	}
	gpus := hardware.Open()
	k.Later(func() error { gpus.Close(); return nil })
	card, err := devices.CardOf(k.Device.Info(), gpus)
	if err == nil && card != nil {
		var probe *hardware.Probe
		if probe, err = gpus.Probe(card.Index); err == nil {
			k.Opts.LogOf(logs.ComponentProfiler).Info(fmt.Sprintf("NVML enabled for GPU %d", card.Index), "name", card.Name, "memory_mb", card.MemoryBytes>>20)
			return probe
		}
	}
	k.Opts.LogOf(logs.ComponentProfiler).Warn("GPU telemetry unavailable: the driver does not report it", "error", err)
	return hardware.ProbeCPU()
}
