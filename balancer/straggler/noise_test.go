package straggler

import (
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

func TestNoiseHasTheCauseThatASensorMeasures(t *testing.T) {
	with := func(data float64, values map[telemetry.Sensor]float64) Observation {
		o := Observation{Seconds: 0.1, Samples: 8, Data: data, Expected: 0.1, ExpectedError: 0.01, Link: math.NaN(),
			Health: telemetry.Summary{Value: telemetry.Unknown()}}
		for sensor, v := range values {
			o.Health.Value[sensor], o.Health.Samples[sensor] = v, 10
		}
		return o
	}
	quiet := with(0, map[telemetry.Sensor]float64{telemetry.CPUQuota: 1, telemetry.StolenCPU: 2,
		telemetry.ThermalThrottling: 0})
	for name, test := range map[string]struct {
		window []Observation
		noise  float64
		rank   int
		want   Cause
	}{
		"stolen CPU time of any rank": {[]Observation{quiet,
			with(0, map[telemetry.Sensor]float64{telemetry.StolenCPU: 30})}, 0.02, -1, CauseStolenCPU},
		"of the noisy rank only": {[]Observation{quiet,
			with(0, map[telemetry.Sensor]float64{telemetry.StolenCPU: 30})}, 0.02, 0, CauseUnknown},
		"the largest loss": {[]Observation{with(0, map[telemetry.Sensor]float64{telemetry.StolenCPU: 30,
			telemetry.CPUQuota: 40})}, 0.02, 0, CauseQuota},
		"waits for data": {[]Observation{with(0.03,
			map[telemetry.Sensor]float64{telemetry.StolenCPU: 5})}, 0.02, -1, CauseData},
		"too little to explain": {[]Observation{with(0.01,
			map[telemetry.Sensor]float64{telemetry.StolenCPU: 5})}, 0.05, -1, CauseUnknown},
		"a sensor that measures no time": {[]Observation{with(0,
			map[telemetry.Sensor]float64{telemetry.ThermalThrottling: 0.8})}, 0.05, 0, CauseThermal},
		"no sensor": {[]Observation{with(math.NaN(), nil)}, 0.05, -1, CauseUnknown},
	} {
		d := NewDetector(len(test.window))
		calm := make([]Observation, len(test.window))
		for i := range calm {
			calm[i] = quiet
		}
		for step := range int64(6) {
			if _, err := d.Observe(10*step, calm); err != nil {
				t.Fatal(err)
			}
		}
		if got, evidence := d.NoiseCause(test.window, test.noise, test.rank); got != test.want ||
			(evidence == "") != (got == CauseUnknown) {
			t.Errorf("%s: got %v (%q), want %v", name, got, evidence, test.want)
		}
	}
}

func TestNoiseCausesAreAllCausesOnce(t *testing.T) {
	names := NoiseCauses()
	seen := map[string]bool{}
	for _, name := range names {
		if name == "" || seen[name] {
			t.Errorf("got the names %q: %q is empty or there twice", names, name)
		}
		seen[name] = true
	}
	for _, c := range []Cause{CauseUnknown, CauseData, CauseQuota, CauseStolenCPU, CauseThermal, CauseClock,
		CausePCIe} {
		if !seen[c.String()] {
			t.Errorf("got the names %q, want also %v", names, c)
		}
	}
}
