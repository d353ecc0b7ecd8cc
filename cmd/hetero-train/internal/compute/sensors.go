package compute

import (
	"context"
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/system"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// OpenTelemetry starts to read the sensors, if profile.enabled is set. It also sets Links to the links of all ranks, so
// every rank must call it. While quiet returns true, the rank reads no sensors, and all values are unknown.
func (k *Rank) OpenTelemetry(ctx context.Context, quiet func() bool) error {
	var own []telemetry.Link
	if k.Process.Cfg.Profile.Enabled {
		t := &Telemetry{log: k.Process.Opts.LogOf(logs.ComponentProfiler), quiet: quiet}
		probe, sources := k.openProbe()
		t.probe = probe
		if k.LeadsHost() {
			sources = append(sources, system.NewLinkSampler())
		}
		t.links = hardware.NewLinks(sources...)
		k.Process.Later(t.links.Close)
		own = t.links.All()
		t.traffic = make([]telemetry.Traffic, len(own))
		k.Telemetry = t
	}
	var err error
	k.Links, err = process.GatherAll(ctx, k.Team, "links", "links of rank", own)
	return err
}

// openProbe opens the probe of this rank's GPU, otherwise that of the CPU. It returns the source of the GPU's links, if
// it has opened the GPU.
func (k *Rank) openProbe() (probe *hardware.Probe, links []hardware.LinkSource) {
	defer func() {
		if probe == nil {
			probe = hardware.ProbeCPU(k.Limits())
		}
		k.Process.Later(probe.Close)
	}()
	if k.Device.Info().Kind != "cuda" {
		return nil, nil
	}
	gpus := hardware.Open()
	k.Process.Later(func() error { gpus.Close(); return nil })
	card, err := devices.CardOf(k.Device.Info(), gpus)
	if err == nil && card != nil {
		ofGPU, probeErr := gpus.Probe(card.Index, system.Limits{PID: k.Process.Opts.PID})
		source, linkErr := gpus.LinkSource(card.Index, false)
		if err = errors.Join(probeErr, linkErr); err == nil {
			k.Process.Opts.LogOf(logs.ComponentProfiler).Info(fmt.Sprintf("NVML enabled for GPU %d", card.Index),
				"name", card.Name, "memory_mb", card.MemoryBytes>>20)
			return ofGPU, []hardware.LinkSource{source}
		}
	}
	k.Process.Opts.LogOf(logs.ComponentProfiler).Warn("GPU telemetry unavailable: the driver does not report it",
		"error", err)
	return nil, nil
}

// Limits returns what this rank may use of its machine, in addition to the limits of its process:
//
//	CPUs    those of its threads. Ranks that one process has started divide the affinity and the quota of this process
//	memory  the limit that the rank reaches first: that of its control group, or its part of the memory of the machine,
//	        which the ranks of the machine divide
func (k *Rank) Limits() system.Limits {
	l := system.Limits{Threads: k.Device.Info().Threads, PID: k.Process.Opts.PID}
	if session.SharesLimits(k.Process.Opts.Assignment, k.Process.Opts.Env) {
		l.Processes = k.Process.LocalRanks()
	}
	if k.Device.Info().Kind == "cuda" { // MemoryBytes would be the memory of the GPU
		return l
	}
	l.MemoryBytes = k.MemoryBytes()
	if host, _ := system.Detect(); host.Memory.Total > 0 { // Detect omits unreadable properties
		part := host.Memory.Total / int64(k.Process.LocalRanks())
		if l.MemoryBytes == 0 || part < l.MemoryBytes {
			l.MemoryBytes = part
		}
	}
	return l
}

// LeadsHost reports whether this is the first rank of its machine.
func (k *Rank) LeadsHost() bool {
	if k.Team == nil {
		return true
	}
	if k.Team.Exchange != nil {
		return k.Team.Place.LocalRank <= 0
	}
	members, own := k.Team.Group.Members(), k.Team.Place.Rank
	for _, m := range members {
		if m.Host == members[own].Host {
			return m.Rank == own
		}
	}
	return true
}

// MeasuredMemory returns the memory, in bytes, that counts as 100 % in the telemetry records of this rank. It returns 0
// if this is the memory of a GPU, or if it is unknown.
func (k *Rank) MeasuredMemory() int64 {
	if k.Device.Info().Kind == "cuda" {
		return 0
	}
	host, _ := system.Detect() // Detect omits unreadable properties
	bytes := k.Limits().MemoryBytes
	if host.Memory.Limit > 0 && (bytes == 0 || host.Memory.Limit < bytes) {
		bytes = host.Memory.Limit
	}
	return bytes
}
