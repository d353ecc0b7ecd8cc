package compute

import (
	"fmt"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/hardware"
)

// The bits of throttling are the same wherever they are passed on.
var (
	_ [0]struct{} = [train.ThrottleThermal - int(hardware.ThrottleThermal)]struct{}{}
	_ [0]struct{} = [train.ThrottlePower - int(hardware.ThrottlePower)]struct{}{}
	_ [0]struct{} = [train.ThrottleHardware - int(hardware.ThrottleHardware)]struct{}{}
	_ [0]struct{} = [train.ThrottleQuota - int(hardware.ThrottleQuota)]struct{}{}
	_ [0]struct{} = [train.ThrottleThermal - int(balancer.ThrottleThermal)]struct{}{}
	_ [0]struct{} = [train.ThrottlePower - int(balancer.ThrottlePower)]struct{}{}
	_ [0]struct{} = [train.ThrottleHardware - int(balancer.ThrottleHardware)]struct{}{}
	_ [0]struct{} = [train.ThrottleQuota - int(balancer.ThrottleQuota)]struct{}{}
)

// OpenLoad begins to watch this rank's device and what the process takes of its machine. What is returned is called once a step.
func (j *Rank) OpenLoad(quiet func() bool) func() train.Load {
	probe := j.openProbe()
	j.Later(probe.Close)
	lost := false
	return func() train.Load {
		if quiet() {
			return train.UnknownLoad()
		}
		h, err := probe.Sample()
		if err != nil && !lost {
			lost = true
			j.Opts.LogOf(logs.ComponentProfiler).Warn("device telemetry is no longer available", "error", err)
		}
		return train.Load{UtilizationPercent: h.UtilizationPercent, MemoryPercent: h.MemoryPercent, TemperatureCelsius: h.TemperatureCelsius, PowerWatts: h.PowerWatts,
			ClockPercent: h.ClockPercent, StolenPercent: h.StolenPercent, PCIePercent: h.PCIePercent, Throttle: uint8(h.Throttle), ECCErrors: int(h.ECCErrors), OtherProcesses: h.OtherProcesses}
	}
}

// openProbe watches the GPU of this rank, or the CPU.
func (j *Rank) openProbe() *hardware.Probe {
	if j.Device.Info().Kind != "cuda" {
		return hardware.ProbeCPU()
	}
	gpus := hardware.Open()
	j.Later(func() error { gpus.Close(); return nil })
	card, err := devices.CardOf(j.Device.Info(), gpus)
	if err == nil && card != nil {
		var probe *hardware.Probe
		if probe, err = gpus.Probe(card.Index); err == nil {
			j.Opts.LogOf(logs.ComponentProfiler).Info(fmt.Sprintf("NVML enabled for GPU %d", card.Index), "name", card.Name, "memory_mb", card.MemoryBytes>>20)
			return probe
		}
	}
	j.Opts.LogOf(logs.ComponentProfiler).Warn("GPU telemetry unavailable: the driver does not report it", "error", err)
	return hardware.ProbeCPU()
}
