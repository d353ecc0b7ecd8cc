package hardware

import (
	"fmt"
	"math"
	"strings"
)

// Health is the telemetry of a device. Unknown values are NaN.
type Health struct {
	UtilizationPercent float64 // GPU: time with a kernel running; CPU: CPU quota in use
	MemoryPercent      float64 // used, of the device's memory, or of this process's limit
	TemperatureCelsius float64
	PowerWatts         float64
	// ClockPercent is the present clock of the SMs or the CPU, in percent of its maximum. Idle clocks are low, so the
	// value is meaningful only together with a high utilization.
	ClockPercent float64
	Throttle     Throttle
	// StolenPercent is the time that this process's threads waited for CPUs used by others, in percent of the time in
	// which they ran or wanted to run.
	StolenPercent  float64
	PCIePercent    float64 // generation times width, of their maxima; also low when idle
	ECCErrors      int64   // uncorrected, since the driver was loaded; -1: unknown
	OtherProcesses int     // other processes that compute on this GPU; -1: unknown
}

// unknown returns a Health without known values.
func unknown() Health {
	nan := math.NaN()
	return Health{UtilizationPercent: nan, MemoryPercent: nan, TemperatureCelsius: nan, PowerWatts: nan, ClockPercent: nan,
		StolenPercent: nan, PCIePercent: nan, ECCErrors: -1, OtherProcesses: -1}
}

// Throttle is a set of reasons why a device runs below its clock or a process below its speed, as bits.
type Throttle uint8

// Reasons of Throttle.
const (
	ThrottleThermal  Throttle = 1 << iota // too hot
	ThrottlePower                         // at its power limit, or limited by the power supply
	ThrottleHardware                      // slowed by its hardware, for one of the reasons above or an unknown one
	ThrottleQuota                         // a container's CPU quota was used up
)

func (t Throttle) String() string {
	if t == 0 {
		return "none"
	}
	var names []string
	for i, name := range []string{"thermal", "power", "hardware", "quota"} {
		if t&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "+")
}

// LostError reports that a GPU no longer responds: it has fallen off the bus or needs a reset.
type LostError struct {
	GPU    GPU
	Reason string // the driver's text
}

func (e *LostError) Error() string {
	return fmt.Sprintf("GPU %d (%s, %s) is lost: %s", e.GPU.Index, e.GPU.Name, e.GPU.UUID, e.Reason)
}
