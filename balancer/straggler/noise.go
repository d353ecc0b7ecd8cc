package straggler

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// NoiseCauses returns the names of all causes of noise.
func NoiseCauses() []string {
	names := []string{CauseUnknown.String(), CauseData.String()}
	for sensor, declared := range telemetry.Declared {
		if declared.Sign != nil {
			names = append(names, (firstSensorCause + Cause(sensor)).String())
		}
	}
	return names
}

// NoiseCause returns the main cause of the variation of step times in a window, with the evidence. It compares the
// times that sensors measure as lost, and the times that ranks wait for data. The cause is the largest of these times,
// if it is at least half of the noise. Otherwise the cause is the first sensor whose value differs from the rank's
// healthy windows, or CauseUnknown if there is none.
//
// noise is in s per step. rank is the rank that causes most of the noise; -1: no single rank. Call NoiseCause after
// Observe.
func (d *Detector) NoiseCause(window []Observation, noise float64, rank int) (cause Cause, evidence string) {
	cause, most := CauseUnknown, causedFraction*noise
	consider := func(c Cause, lost float64, format string, args ...any) {
		if lost >= most && lost > 0 && !math.IsInf(lost, 1) {
			cause, most, evidence = c, lost, fmt.Sprintf(format, args...)
		}
	}
	for r := range window {
		o := &window[r]
		if rank >= 0 && r != rank || !measured(o.Seconds) {
			continue
		}
		quota, stolen := o.Health.Value[telemetry.CPUQuota], o.Health.Value[telemetry.StolenCPU]
		consider(CauseQuota, o.Seconds*quota/100, "a CPU quota stops rank %d for %.0f %% of its CPU time", r, quota)
		consider(CauseStolenCPU, o.Seconds*stolen/100, "other programs take %.0f %% of the CPU time of rank %d", stolen,
			r)
		consider(CauseData, o.Data, "rank %d waits %.3g s per step for data", r, o.Data)
	}
	if cause != CauseUnknown || rank < 0 || rank >= len(window) {
		return cause, evidence
	}
	healthy := d.ranks[rank].healthy.sensors()
	for sensor, declared := range telemetry.Declared {
		if declared.Sign == nil || declared.Slowdown != nil || Cause(sensor)+firstSensorCause == CauseStolenCPU {
			continue
		}
		if text := declared.Sign(&window[rank].Health, &healthy); text != "" {
			return firstSensorCause + Cause(sensor), fmt.Sprintf("rank %d: %s", rank, text)
		}
	}
	return CauseUnknown, ""
}
