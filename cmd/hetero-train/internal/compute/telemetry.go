package compute

import (
	"log/slog"

	"github.com/hetero-train/hetero-train/engine/data/images"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// Telemetry reads the sensors of a rank's device, process and machine, and the traffic of its links. The training loop
// calls Sample and then Report once per step.
type Telemetry struct {
	log     *slog.Logger
	probe   *hardware.Probe
	links   *hardware.Links
	traffic []telemetry.Traffic // latest traffic, by link
	first   int                 // first link of the next report
	lost    bool
	quiet   func() bool
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
		t.log.Warn("device telemetry is no longer available", "error", err)
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
