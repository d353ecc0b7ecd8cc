package telemetry

import (
	"fmt"
	"math"
)

// Sensor is the index of a figure in a Sample.
type Sensor int

// Sensors with a sign come first, in the order of a verdict's evidence: reasons that the driver gives, then what it
// measures, then symptoms.
const (
	HardwareSlowdown  Sensor = iota // 1: the hardware slows the GPU down, for a known or an unknown reason; else 0
	ThermalThrottling               // 1: too hot
	PowerLimit                      // 1: at its power limit, or limited by the power supply
	CPUQuota                        // 1: the container used up its CPU quota
	PCIe                            // generation times width of the link, of their maxima; also low when idle
	ECCErrors                       // uncorrected, since the driver was loaded
	OtherProcesses                  // other processes that compute on the GPU
	StolenCPU                       // CPU time that others used while this process wanted to run, of the time it ran or wanted to
	Memory                          // used, of the device's memory or of this process's limit
	Clock                           // of the SMs or the CPU, of its maximum; idle clocks are low
	Utilization                     // GPU: time with a kernel running; CPU: part of the CPU quota in use
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

	// Cause names the verdict that the sensor's sign explains, "" without a Sign.
	Cause string
	// Sign returns the evidence for Cause if the summary differs enough from the rank's healthy mean, else "". A mean
	// is NaN if the rank was never seen healthy. Only ranks that are slower than their own curve are searched for signs,
	// so the thresholds are small.
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
			return drop("PCIe link at %.0f %% of its full bandwidth, was %.0f %%", now.Value[PCIe], or(healthy[PCIe], 100))
		}},
	ECCErrors: {Name: "ECC errors", Window: Increase, Cause: "ECC errors",
		Sign: func(now *Summary, healthy *Sample) string {
			v, was := now.Value[ECCErrors], or(healthy[ECCErrors], 0)
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

// Smallest changes that are signs.
const (
	signThrottled = 0.2  // more of the samples throttled, as a fraction
	signDrop      = 0.9  // of the healthy mean: clock, power, PCIe link
	signStolen    = 5.0  // percentage points of CPU time
	signMemory    = 5.0  // percentage points, above fullMemory
	fullMemory    = 90.0 // percent
	signProcess   = 0.5  // other processes
)

// when returns the formatted text if the condition is true.
func when(is bool, format string, args ...any) string {
	if !is {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// drop returns the text if the figure is below its healthy mean.
func drop(format string, v, was float64) string { return when(v < signDrop*was, format, v, was) }

// rise returns the text if the figure is at least by above its healthy mean.
func rise(format string, v, was, by float64) string { return when(v-was >= by, format, v, was) }

// or returns v, or other if v is unknown.
func or(v, other float64) float64 {
	if math.IsNaN(v) {
		return other
	}
	return v
}

// throttling returns the evidence if more samples are throttled than usual: "hardware slowdown for 12 of 20 samples".
func throttling(name string, s Sensor, now *Summary, healthy *Sample) string {
	was := or(healthy[s], 0)
	return when(now.Value[s]-was >= signThrottled, "%s%s", name, samples(s, now, was))
}

// samples returns how many samples of a window are throttled.
func samples(s Sensor, now *Summary, was float64) string {
	of := now.Samples[s]
	text := fmt.Sprintf(" for %.0f of %d samples", now.Value[s]*float64(of), of)
	if was >= 0.005 {
		text += fmt.Sprintf(", was %.0f %%", 100*was)
	}
	return text
}

// powerLimit is the Sign of PowerLimit. A healthy GPU with full load is often at its power limit; then the limit itself
// must be lower than before.
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
