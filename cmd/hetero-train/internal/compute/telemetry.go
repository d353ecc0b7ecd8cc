package compute

import (
	"context"
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/data/images"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/system"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// Telemetry reads the sensors of a rank's device, process and machine, and the traffic of its links. The training loop
// calls Sample and then Report once per step.
type Telemetry struct {
	rank    *Rank
	probe   *hardware.Probe
	links   *hardware.Links
	traffic []telemetry.Traffic // latest traffic, by link
	first   int                 // first link of the next report
	lost    bool
	quiet   func() bool
}

// OpenTelemetry starts to read the sensors, if profile.enabled is set. It also sets Links to the links of all ranks, so
// every rank must call it. While quiet returns true, the rank reads no sensors, and all values are unknown.
func (k *Rank) OpenTelemetry(ctx context.Context, quiet func() bool) error {
	var own []telemetry.Link
	if k.Process.Cfg.Profile.Enabled {
		t := &Telemetry{rank: k, quiet: quiet}
		sources := t.open()
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

// open opens the probe of this rank's GPU, otherwise that of the CPU. It returns the source of the GPU's links, if it
// has opened the GPU.
func (t *Telemetry) open() (links []hardware.LinkSource) {
	k := t.rank
	defer func() {
		if t.probe == nil {
			t.probe = hardware.ProbeCPU(k.Limits())
		}
		k.Process.Later(t.probe.Close)
	}()
	if k.Device.Info().Kind != "cuda" {
		return nil
	}
	gpus := hardware.Open()
	k.Process.Later(func() error { gpus.Close(); return nil })
	card, err := devices.CardOf(k.Device.Info(), gpus)
	if err == nil && card != nil {
		probe, probeErr := gpus.Probe(card.Index, system.Limits{PID: k.Process.Opts.PID})
		source, linkErr := gpus.LinkSource(card.Index, false)
		if err = errors.Join(probeErr, linkErr); err == nil {
			t.probe = probe
			k.Process.Opts.LogOf(logs.ComponentProfiler).Info(fmt.Sprintf("NVML enabled for GPU %d", card.Index),
				"name", card.Name, "memory_mb", card.MemoryBytes>>20)
			return []hardware.LinkSource{source}
		}
	}
	k.Process.Opts.LogOf(logs.ComponentProfiler).Warn("GPU telemetry unavailable: the driver does not report it",
		"error", err)
	return nil
}

// Sample returns the values of all sensors. It never waits until the traffic of a GPU's links has been read.
func (t *Telemetry) Sample() telemetry.Sample {
	if t.quiet() {
		for i := range t.traffic {
			t.traffic[i] = telemetry.UnknownTraffic()
		}
		return telemetry.Unknown()
	}
	sample, err := t.probe.Sample()
	if err != nil && !t.lost {
		t.lost = true
		t.rank.Process.Opts.LogOf(logs.ComponentProfiler).Warn("device telemetry is no longer available", "error", err)
	}
	t.links.Sample(t.traffic)
	telemetry.PutTraffic(&sample, t.links.All(), t.traffic)
	if _, most := images.DecoderBytes(); most > 0 {
		sample[telemetry.ImageDecoders] = float64(most)
	}
	return sample
}

// Report returns the traffic of a few links, as of the last Sample. Successive calls report all links in turn.
func (t *Telemetry) Report() (r train.LinkReport) {
	if t.first >= len(t.traffic) {
		t.first = 0
	}
	r.First = t.first
	for i := range r.Traffic {
		if r.Traffic[i] = telemetry.UnknownTraffic(); t.first < len(t.traffic) {
			r.Traffic[i] = t.traffic[t.first]
			t.first++
		}
	}
	return r
}
