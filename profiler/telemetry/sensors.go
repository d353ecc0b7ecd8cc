package telemetry

import (
	"fmt"
	"math"
)

// Sensor is the index of a sensor in a Sample.
type Sensor int

// Sensors with a Sign function, which can explain a slowdown, come first. A verdict lists its evidence in this order:
// reasons that the driver reports, then measurements, then symptoms.
const (
	HardwareSlowdown  Sensor = iota // 1 if the hardware slows down the GPU for any reason, else 0
	ThermalThrottling               // 1 if the device is slowed down because of its temperature, else 0
	PowerLimit                      // 1 if the power limit or the power supply limits the device, else 0
	// Time for which a CPU quota stopped the threads of this process, in % of this time plus their run time.
	CPUQuota
	PCIe           // link generation × width, % of the maximum; also low on an idle GPU
	ECCErrors      // counter of uncorrected memory errors since the driver was loaded
	OtherProcesses // number of other processes that compute on the GPU
	// Time that threads of this process waited for CPUs that other processes used, in % of this time plus their run
	// time.
	StolenCPU
	Memory      // memory in use, % of the device's memory or of the memory limit of this process
	Clock       // clock of the SMs or of the CPU, % of the maximum; low on an idle device
	Utilization // GPU: % of the time in which a kernel runs; CPU: % of the CPUs that the process may use
	Temperature
	Power
	// Traffic of all links of a kind; see PutTraffic.
	NVLinkSent
	NVLinkReceived
	PCIeSent
	PCIeReceived
	NetworkSent
	NetworkReceived
	RDMASent
	RDMAReceived
	ImageDecoders // largest memory use of this process's image decoders so far, bytes

	Count // number of sensors
)

// Declaration describes one sensor.
type Declaration struct {
	Name   string
	Unit   string // unit; "" for a count
	Column string // name of the column in metric records; "" if the records omit the sensor
	// Optional means that a record omits the column if the value is unknown. Records stay short on machines without
	// such hardware.
	Optional bool
	Window   Rule   // rule that summarizes the samples of a window
	DCGM     string // field of NVIDIA's DCGM with the same quantity and unit; "" if there is none

	// Cause is the cause of a slowdown that Sign detects; "" if Sign is nil.
	Cause string
	// Sign compares the summary of a window with the mean over the healthy windows of the rank. If the difference is
	// large enough, it returns the evidence for Cause as text, otherwise "". A mean in healthy is NaN if no sample of
	// the healthy windows is known.
	//
	// Sign is called only for a rank that is slower than its step-time curve in package balancer predicts. Its
	// thresholds are therefore small.
	Sign func(now *Summary, healthy *Sample) string
	// Slowdown returns the slowdown that this sensor alone shows: the time of the rank's work divided by the time of
	// the same work in the healthy windows. It returns NaN if this is unknown. Slowdown is nil for sensors that measure
	// no lost time of the rank.
	Slowdown func(now *Summary, healthy *Sample) float64
}

// Declared contains one row per sensor.
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
	CPUQuota: {Name: "stopped by a CPU quota", Unit: percent, Cause: "CPU quota",
		Sign: func(now *Summary, healthy *Sample) string {
			return rise("a CPU quota stops the rank for %.0f %% of its CPU time, was %.0f %%", now.Value[CPUQuota],
				healthy[CPUQuota], signStolen)
		},
		Slowdown: func(now *Summary, healthy *Sample) float64 {
			if lostCPU(&now.Value) <= lostCPU(healthy) {
				return 1 // no slowdown: the quota now takes the time that other programs took before
			}
			return (100 - healthy[CPUQuota]) / (100 - now.Value[CPUQuota])
		}},
	PCIe: {Name: "PCIe bandwidth", Unit: percent, Window: Lowest, Cause: "PCIe link",
		Sign: func(now *Summary, healthy *Sample) string {
			return drop("PCIe link at %.0f %% of its full bandwidth, was %.0f %%", now.Value[PCIe],
				orElse(healthy[PCIe], 100))
		}},
	ECCErrors: {Name: "ECC errors", Window: Increase, Cause: "ECC errors",
		Sign: func(now *Summary, healthy *Sample) string {
			v, was := now.Value[ECCErrors], orElse(healthy[ECCErrors], 0)
			return when(v >= math.Max(1, 2*was), "%.0f ECC errors in the window, was %.2g", v, was)
		}},
	OtherProcesses: {Name: "other processes", Window: Highest, Cause: "another process on the device",
		Sign: func(now *Summary, healthy *Sample) string {
			return rise("other processes on the device: %.0f, was %.2g", now.Value[OtherProcesses],
				healthy[OtherProcesses], signProcess)
		}},
	StolenCPU: {Name: "stolen CPU time", Unit: percent, Cause: "CPU time taken by others",
		Sign: func(now *Summary, healthy *Sample) string {
			return rise("other programs take %.0f %% of the CPU time, was %.0f %%", now.Value[StolenCPU],
				healthy[StolenCPU], signStolen)
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
	Utilization: {Name: "utilization", Unit: percent, Column: "gpu_utilization", DCGM: "DCGM_FI_DEV_GPU_UTIL"},
	Temperature: {Name: "temperature", Unit: "°C", Column: "temperature", DCGM: "DCGM_FI_DEV_GPU_TEMP"},
	Power:       {Name: "power", Unit: "W", Column: "power", DCGM: "DCGM_FI_DEV_POWER_USAGE"},

	NVLinkSent:      traffic("NVLink sent", "nvlink_sent", "DCGM_FI_PROF_NVLINK_TX_BYTES"),
	NVLinkReceived:  traffic("NVLink received", "nvlink_received", "DCGM_FI_PROF_NVLINK_RX_BYTES"),
	PCIeSent:        traffic("PCIe sent", "pcie_sent", "DCGM_FI_PROF_PCIE_TX_BYTES"),
	PCIeReceived:    traffic("PCIe received", "pcie_received", "DCGM_FI_PROF_PCIE_RX_BYTES"),
	NetworkSent:     traffic("network sent", "network_sent", ""),
	NetworkReceived: traffic("network received", "network_received", ""),
	RDMASent:        traffic("RDMA sent", "rdma_sent", ""),
	RDMAReceived:    traffic("RDMA received", "rdma_received", ""),

	ImageDecoders: {Name: "largest memory of the image decoders so far", Unit: "bytes", Column: "image_decoder_bytes",
		Optional: true, Window: Highest},
}

// traffic declares a traffic sensor for one direction.
func traffic(name, column, dcgm string) Declaration {
	return Declaration{Name: name, Unit: BytesPerSecond, Column: column, Optional: true, DCGM: dcgm}
}

// BytesPerSecond is the unit of the traffic sensors.
const BytesPerSecond = "bytes/s"

const (
	percent  = "%"
	fraction = "fraction of samples"
)

// Smallest differences from the healthy mean that count as evidence.
const (
	signThrottled = 0.2  // increase of the fraction of throttled samples
	signDrop      = 0.9  // fraction of the healthy mean; a lower clock, power or PCIe link is evidence
	signStolen    = 5.0  // increase of the stolen CPU time, or of the time stopped by a quota, percentage points
	signMemory    = 5.0  // increase of the memory in use, percentage points; counts only at fullMemory or above
	fullMemory    = 90.0 // memory in use, %
	signProcess   = 0.5  // increase of the number of other processes
)

// when returns the formatted text if the condition is true, else "".
func when(is bool, format string, args ...any) string {
	if !is {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// drop returns the formatted text if v is below signDrop times mean, else "".
func drop(format string, v, mean float64) string { return when(v < signDrop*mean, format, v, mean) }

// rise returns the formatted text if v exceeds mean by at least margin, else "".
func rise(format string, v, mean, margin float64) string {
	return when(v-mean >= margin, format, v, mean)
}

// orElse returns v, or fallback if v is NaN.
func orElse(v, fallback float64) float64 {
	if math.IsNaN(v) {
		return fallback
	}
	return v
}

// throttling returns evidence if the fraction of throttled samples is higher than usual: "hardware slowdown for 12 of
// 20 samples".
func throttling(name string, s Sensor, now *Summary, healthy *Sample) string {
	was := orElse(healthy[s], 0)
	return when(now.Value[s]-was >= signThrottled, "%s%s", name, samples(s, now, was))
}

// samples describes the number of throttled samples of a window: " for 12 of 20 samples, was 5 %".
func samples(s Sensor, now *Summary, was float64) string {
	of := now.Samples[s]
	text := fmt.Sprintf(" for %.0f of %d samples", now.Value[s]*float64(of), of)
	if was >= 0.005 {
		text += fmt.Sprintf(", was %.0f %%", 100*was)
	}
	return text
}

// lostCPU returns the time in which threads ran or waited, divided by their run time. Waits are those for a CPU and for
// the quota.
func lostCPU(s *Sample) float64 {
	wait := func(percent float64) float64 { return percent / (100 - percent) }
	return 1 + wait(s[CPUQuota]) + wait(orElse(s[StolenCPU], 0))
}

// powerLimit is the Sign of PowerLimit. A healthy GPU at full load often reaches its power limit. For such a GPU, the
// limit is evidence only if power and clock are also lower than their healthy means.
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
