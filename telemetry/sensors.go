package telemetry

import (
	"fmt"
	"math"
)

// Sensor is the index of a sensor's value in a Sample.
type Sensor int

// Sensors that can explain a slowdown (those with a Sign function) come first, in the order in which a verdict lists
// evidence. Reasons that the driver reports precede measurements, and measurements precede symptoms.
const (
	HardwareSlowdown  Sensor = iota // 1: the hardware slows the GPU down, for whatever reason; else 0
	ThermalThrottling               // 1: the device is slowed down because it is too hot; else 0
	PowerLimit                      // 1: the device is at its power limit, or limited by the power supply; else 0
	CPUQuota                        // 1: the container used up its CPU quota; else 0
	PCIe                            // link generation times width, as a percentage of the maximum; also low when idle
	ECCErrors                       // uncorrected memory errors since the driver was loaded
	OtherProcesses                  // number of other processes that compute on the GPU
	// CPU time that others used while this process wanted to run, as a percentage of the time that it ran or wanted to
	// run.
	StolenCPU
	Memory      // memory in use, as a percentage of the device's memory or of this process's limit
	Clock       // clock of the SMs or the CPU, as a percentage of the maximum; low when idle
	Utilization // GPU: percentage of time with a kernel running; CPU: percentage of the CPU quota in use
	Temperature
	Power

	Count // number of sensors
)

// Declaration describes a sensor.
type Declaration struct {
	Name   string
	Unit   string // "" for a count
	Column string // key in metric records; "": not recorded
	Window Rule   // the summary of a window's samples

	// Cause names the cause of a slowdown that Sign detects; "" without a Sign.
	Cause string
	// Sign returns the evidence for Cause if the summary differs enough from the rank's healthy mean, else "". A healthy
	// mean is NaN if no sample of the rank was healthy. Sign is called only for ranks that are slower than their own
	// curve, so the thresholds are small.
	Sign func(now *Summary, healthy *Sample) string
}

// Declared has one row per sensor.
var Declared = [Count]Declaration{
	HardwareSlowdown: {Name: "hardware slowdown", Unit: fraction, Cause: "hardware slowdown",
		Sign: func(now *Summary, healthy *Sample) string {
			return throttling("hardware slowdown", HardwareSlowdown, now, healthy)
		}},
	ThermalThrottling: {Name: "thermal throttling", Unit: fraction, Cause: "thermal throttling",
		Sign: func(now *Summary, healthy *Sample) string {
			text := throttling("thermal throttling", ThermalThrottling, now, healthy)
			if celsius := now.Value[Temperature]; text != "" && !math.IsNaN(celsius) {
				text += fmt.Sprintf(" at %.0f °C", celsius)
			}
			return text
		}},
	PowerLimit: {Name: "power limit", Unit: fraction, Cause: "power limit", Sign: powerLimit},
	CPUQuota: {Name: "CPU quota used up", Unit: fraction, Cause: "CPU quota",
		Sign: func(now *Summary, healthy *Sample) string {
			return throttling("CPU quota used up", CPUQuota, now, healthy)
		}},
	PCIe: {Name: "PCIe bandwidth", Unit: percent, Window: Lowest, Cause: "PCIe link",
		Sign: func(now *Summary, healthy *Sample) string {
			return drop("PCIe link at %.0f %% of its full bandwidth, was %.0f %%", now.Value[PCIe], orElse(healthy[PCIe], 100))
		}},
	ECCErrors: {Name: "ECC errors", Window: Increase, Cause: "ECC errors",
		Sign: func(now *Summary, healthy *Sample) string {
			v, was := now.Value[ECCErrors], orElse(healthy[ECCErrors], 0)
			return when(v >= math.Max(1, 2*was), "%.0f ECC errors in the window, was %.2g", v, was)
		}},
	OtherProcesses: {Name: "other processes", Window: Highest, Cause: "another process on the device",
		Sign: func(now *Summary, healthy *Sample) string {
			return rise("other processes on the device: %.0f, was %.2g", now.Value[OtherProcesses], healthy[OtherProcesses], signProcess)
		}},
	StolenCPU: {Name: "stolen CPU time", Unit: percent, Cause: "CPU taken by others",
		Sign: func(now *Summary, healthy *Sample) string {
			return rise("%.0f %% of the CPU time taken by others, was %.0f %%", now.Value[StolenCPU], healthy[StolenCPU], signStolen)
		}},
	Memory: {Name: "memory", Unit: percent, Column: "gpu_memory_percent", Cause: "memory pressure",
		Sign: func(now *Summary, healthy *Sample) string {
			if !(now.Value[Memory] >= fullMemory) {
				return ""
			}
			return rise("memory %.0f %% full, was %.0f %%", now.Value[Memory], healthy[Memory], signMemory)
		}},
	Clock: {Name: "clock", Unit: percent, Cause: "clock drop",
		Sign: func(now *Summary, healthy *Sample) string {
			return drop("clock %.0f %% of its maximum, was %.0f %%", now.Value[Clock], healthy[Clock])
		}},
	Utilization: {Name: "utilization", Unit: percent, Column: "gpu_utilization"},
	Temperature: {Name: "temperature", Unit: "°C", Column: "temperature"},
	Power:       {Name: "power", Unit: "W", Column: "power"},
}

const (
	percent  = "%"
	fraction = "fraction of samples"
)

// Smallest changes from the healthy mean that are evidence.
const (
	signThrottled = 0.2  // increase of the fraction of samples that are throttled
	signDrop      = 0.9  // fraction of the healthy mean of clock, power or PCIe link; lower values are evidence
	signStolen    = 5.0  // increase in percentage points of CPU time
	signMemory    = 5.0  // increase in percentage points, if memory is at least fullMemory
	fullMemory    = 90.0 // percent
	signProcess   = 0.5  // increase of the mean number of other processes
)

// when returns the formatted text if the condition is true.
func when(is bool, format string, args ...any) string {
	if !is {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// drop returns the text if v is below signDrop times mean, its healthy mean.
func drop(format string, v, mean float64) string { return when(v < signDrop*mean, format, v, mean) }

// rise returns the text if v exceeds mean, its healthy mean, by at least margin.
func rise(format string, v, mean, margin float64) string {
	return when(v-mean >= margin, format, v, mean)
}

// orElse returns v, or fallback if v is unknown.
func orElse(v, fallback float64) float64 {
	if math.IsNaN(v) {
		return fallback
	}
	return v
}

// throttling returns the evidence if more samples are throttled than usual: "hardware slowdown for 12 of 20 samples".
func throttling(name string, s Sensor, now *Summary, healthy *Sample) string {
	was := orElse(healthy[s], 0)
	return when(now.Value[s]-was >= signThrottled, "%s%s", name, samples(s, now, was))
}

// samples returns text about the number of throttled samples in the window: " for 12 of 20 samples, was 5 %".
func samples(s Sensor, now *Summary, was float64) string {
	of := now.Samples[s]
	text := fmt.Sprintf(" for %.0f of %d samples", now.Value[s]*float64(of), of)
	if was >= 0.005 {
		text += fmt.Sprintf(", was %.0f %%", 100*was)
	}
	return text
}

// powerLimit is the Sign of PowerLimit. A healthy GPU with full load is often at its power limit. For such a GPU,
// reaching the limit is evidence only if power and clock are also lower than their healthy means.
func powerLimit(now *Summary, healthy *Sample) string {
	v, was, watts := now.Value[PowerLimit], healthy[PowerLimit], healthy[Power]
	more := v-was >= signThrottled
	lower := v >= signThrottled && now.Value[Power] < signDrop*watts && now.Value[Clock] < signDrop*healthy[Clock]
	if !more && !lower {
		return ""
	}
	text := "power limit reached" + samples(PowerLimit, now, was)
	if !math.IsNaN(now.Value[Power]) && !math.IsNaN(watts) {
		text += fmt.Sprintf(" at %.0f W, was %.0f W", now.Value[Power], watts)
	}
	return text
}
