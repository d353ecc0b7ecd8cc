package straggler_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// fakeRank is a simulated device. It contains the values of its sensors in health, and the effect of a problem on them.
type fakeRank struct {
	expected float64 // seconds per step, from the curve of the rank
	data     float64
	link     float64
	health   telemetry.Summary
}

// windowSamples is the number of samples in a window of a fakeRank.
const windowSamples = 20

// set sets the value of one sensor in a window.
func set(h *telemetry.Summary, s telemetry.Sensor, v float64) {
	h.Value[s], h.Samples[s] = v, windowSamples
}

// throttled sets the number of samples with a reason for throttling.
func throttled(h *telemetry.Summary, s telemetry.Sensor, samples int) {
	set(h, s, float64(samples)/windowSamples)
}

func unknownHealth() telemetry.Summary { return telemetry.Summary{Value: telemetry.Unknown()} }

func gpuRank(expected float64) fakeRank {
	h := unknownHealth()
	for s, v := range map[telemetry.Sensor]float64{telemetry.Utilization: 97, telemetry.Memory: 60,
		telemetry.Temperature: 71,
		telemetry.Power:       250, telemetry.Clock: 96, telemetry.PCIe: 100, telemetry.ECCErrors: 0,
		telemetry.OtherProcesses:   0,
		telemetry.HardwareSlowdown: 0, telemetry.ThermalThrottling: 0, telemetry.PowerLimit: 0, telemetry.CPUQuota: 0} {
		set(&h, s, v)
	}
	return fakeRank{expected: expected, data: 0.004, link: 0.08, health: h}
}

func cpuRank(expected float64) fakeRank {
	h := unknownHealth()
	for s, v := range map[telemetry.Sensor]float64{telemetry.Utilization: 98, telemetry.Memory: 60,
		telemetry.StolenCPU:         0.5,
		telemetry.ThermalThrottling: 0, telemetry.CPUQuota: 0} {
		set(&h, s, v)
	}
	return fakeRank{expected: expected, data: 0.004, link: 0.08, health: h}
}

// busyRank shares its CPUs with many other programs.
func busyRank(expected float64) fakeRank {
	r := cpuRank(expected)
	set(&r.health, telemetry.StolenCPU, 85)
	return r
}

// laptopRank is always hot, and always at 60 % of its clock.
func laptopRank(expected float64) fakeRank {
	r := gpuRank(expected)
	set(&r.health, telemetry.Clock, 60)
	set(&r.health, telemetry.Temperature, 92)
	throttled(&r.health, telemetry.ThermalThrottling, 8)
	throttled(&r.health, telemetry.PowerLimit, 20)
	return r
}

// window makes one observation with lognormal noise. noise is its standard deviation.
func (r fakeRank) window(random *rand.Rand, noise float64) straggler.Observation {
	return straggler.Observation{Seconds: r.expected * math.Exp(noise*random.NormFloat64()), Data: r.data,
		Expected: r.expected, ExpectedError: 0.005 * r.expected,
		Link: r.link * math.Exp(noise*random.NormFloat64()), Health: r.health}
}

// windowOf returns an observation of each rank for one window.
func windowOf(ranks []fakeRank, random *rand.Rand, noise float64) (window []straggler.Observation) {
	for _, r := range ranks {
		window = append(window, r.window(random, noise))
	}
	return window
}

func slower(by float64) func(o *straggler.Observation) {
	return func(o *straggler.Observation) { o.Seconds *= by }
}

// Four ranks run for 60 windows of 10 steps. Rank 2 has a problem from window 20 to window 39. Its verdict must begin
// within two of these windows, and end within two windows after them. No other rank may get a verdict.
func TestSickRanksAreNamedWithTheirCause(t *testing.T) {
	cases := []struct {
		name    string
		rank    fakeRank // rank 2 in health
		trouble func(o *straggler.Observation)
		cause   straggler.Cause
		says    []string
		ratio   float64
	}{
		{"thermal throttling with a clock drop", gpuRank(0.4), func(o *straggler.Observation) {
			o.Seconds *= 1.6
			set(&o.Health, telemetry.Clock, 58)
			set(&o.Health, telemetry.Temperature, 93)
			throttled(&o.Health, telemetry.ThermalThrottling, 12)
		}, straggler.CauseThermal, []string{"thermal throttling for 12 of 20 samples at 93 °C",
			"clock 58 % of its maximum, was 96 %"}, 1.6},
		{"a laptop that is always hot gets hotter", laptopRank(0.4), func(o *straggler.Observation) {
			o.Seconds *= 1.3
			throttled(&o.Health, telemetry.ThermalThrottling, 18)
		}, straggler.CauseThermal, []string{"thermal throttling for 18 of 20 samples, was 40 % at 92 °C"}, 1.3},
		{"a power cap", gpuRank(0.4), func(o *straggler.Observation) {
			o.Seconds *= 1.4
			set(&o.Health, telemetry.Clock, 70)
			set(&o.Health, telemetry.Power, 150)
			throttled(&o.Health, telemetry.PowerLimit, 20)
		}, straggler.CausePower, []string{"power limit reached for 20 of 20 samples at 150 W, was 250 W", "clock 70 %"},
			1.4},
		{"a lower power cap where there always was one", laptopRank(0.4), func(o *straggler.Observation) {
			o.Seconds *= 1.4
			set(&o.Health, telemetry.Clock, 40)
			set(&o.Health, telemetry.Power, 150)
		}, straggler.CausePower, []string{"power limit reached for 20 of 20 samples, was 100 % at 150 W, was 250 W"},
			1.4},
		{"hardware slowdown", gpuRank(0.4), func(o *straggler.Observation) {
			o.Seconds *= 2
			set(&o.Health, telemetry.Clock, 50)
			throttled(&o.Health, telemetry.HardwareSlowdown, 20)
		}, straggler.CauseHardware, []string{"hardware slowdown for 20 of 20 samples"}, 2},
		{"a clock drop without a reason", gpuRank(0.4), func(o *straggler.Observation) {
			o.Seconds *= 1.5
			set(&o.Health, telemetry.Clock, 64)
		}, straggler.CauseClock, []string{"clock 64 % of its maximum, was 96 %"}, 1.5},
		{"PCIe x16 becomes x4", gpuRank(0.4), func(o *straggler.Observation) {
			o.Seconds *= 1.25
			set(&o.Health, telemetry.PCIe, 25)
		}, straggler.CausePCIe, []string{"PCIe link at 25 % of its full bandwidth, was 100 %"}, 1.25},
		{"ECC errors", gpuRank(0.4), func(o *straggler.Observation) {
			o.Seconds *= 1.25
			set(&o.Health, telemetry.ECCErrors, 7)
		}, straggler.CauseECC, []string{"7 ECC errors in the window, was 0"}, 1.25},
		{"another process on the GPU", gpuRank(0.4), func(o *straggler.Observation) {
			o.Seconds *= 1.8
			set(&o.Health, telemetry.OtherProcesses, 1)
		}, straggler.CauseOtherProcess, []string{"other processes on the device: 1, was 0"}, 1.8},
		{"the CPU quota", cpuRank(0.4), func(o *straggler.Observation) {
			o.Seconds *= 2
			set(&o.Health, telemetry.CPUQuota, 55)
		}, straggler.CauseQuota, []string{"a CPU quota stops the rank for 55 % of its CPU time, was 0 %"}, 2},
		{"the CPU quota, on a machine that other programs use", busyRank(0.4), func(o *straggler.Observation) {
			o.Seconds *= 8
			set(&o.Health, telemetry.CPUQuota, 95)
			set(&o.Health, telemetry.StolenCPU, 0) // the quota stops the rank before other programs can take its CPU
		}, straggler.CauseQuota, []string{"a CPU quota stops the rank for 95 % of its CPU time, was 0 %"}, 8},
		{"a neighbour on the CPU, and a quota that explains too little", cpuRank(0.4), func(o *straggler.Observation) {
			o.Seconds *= 3
			set(&o.Health, telemetry.CPUQuota, 6)
			set(&o.Health, telemetry.StolenCPU, 60)
		}, straggler.CauseStolenCPU, []string{"other programs take 60 % of the CPU time"}, 3},
		{"a neighbour on the CPU", cpuRank(0.4), func(o *straggler.Observation) {
			o.Seconds *= 1.5
			set(&o.Health, telemetry.StolenCPU, 33)
		}, straggler.CauseStolenCPU, []string{"other programs take 33 % of the CPU time, was 0 %"}, 1.5},
		{"memory pressure", cpuRank(0.4), func(o *straggler.Observation) {
			o.Seconds *= 1.7
			set(&o.Health, telemetry.Memory, 99)
		}, straggler.CauseMemory, []string{"memory 99 % full, was 60 %"}, 1.7},
		{"data starvation", gpuRank(0.4), func(o *straggler.Observation) {
			o.Seconds += 0.2
			o.Data += 0.2
			set(&o.Health, telemetry.Clock, 70) // an idle GPU lowers its clock
		}, straggler.CauseData, []string{"waits 0.204 s per step for data, was 0.004 s"}, 1.5},
		{"a slow link", gpuRank(0.4), func(o *straggler.Observation) { o.Link *= 4 }, straggler.CauseNetwork,
			[]string{"the links of the rank take 0.3", "was 0.0"}, 4},
		{"no sign", gpuRank(0.4), slower(1.3), straggler.CauseUnknown,
			[]string{"times as slow as its step-time curve predicts; no measurement shows a cause"}, 1.3},
		{"no telemetry", fakeRank{expected: 0.4, data: nan, link: nan, health: unknownHealth()}, slower(1.3),
			straggler.CauseUnknown, nil, 1.3},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(3, 4))
			ranks := []fakeRank{gpuRank(0.4), cpuRank(0.42), c.rank, gpuRank(0.38)}
			d := straggler.NewDetector(len(ranks))
			for n := range 60 {
				window := windowOf(ranks, random, 0.01)
				ill := n >= 20 && n < 40
				if ill {
					c.trouble(&window[2])
				}
				for _, v := range observe(t, d, n, window) {
					mayBe := v.Rank == 2 && n >= 20 && n < 42
					if v.Kind != straggler.Healthy && !mayBe {
						t.Fatalf("window %d: got %+v of a healthy rank", n, v)
					}
					if v.Rank == 2 && n >= 21 && n < 40 {
						checkSick(t, n, v, c.cause, c.says, c.ratio)
					}
				}
				if d.Learns(2) && ill && c.cause != straggler.CauseNetwork {
					t.Errorf("window %d: the curve would learn from a sick rank", n)
				}
			}
		})
	}
}

func observe(t *testing.T, d *straggler.Detector, n int, window []straggler.Observation) []straggler.Verdict {
	t.Helper()
	verdicts, err := d.Observe(int64(10*(n+1)), window)
	if err != nil {
		t.Fatal(err)
	}
	return verdicts
}

func checkSick(t *testing.T, n int, v straggler.Verdict, cause straggler.Cause, says []string, ratio float64) {
	t.Helper()
	if v.Kind != straggler.Sick || v.Cause != cause || v.SinceStep != 210 || math.Abs(v.Ratio/ratio-1) > 0.08 {
		t.Fatalf("window %d: got %+v, want sick of %v since step 210, %.2f times as slow", n, v, cause, ratio)
	}
	for _, text := range says {
		if !strings.Contains(v.Evidence, text) {
			t.Fatalf("window %d: evidence %q does not say %q", n, v.Evidence, text)
		}
	}
}
