package hardware

import (
	"fmt"
	"math"
	"strings"
)

// Health is how a device fares. NaN is what is not known.
type Health struct {
	UtilizationPercent float64 // GPU: share of time with a kernel running; CPU: share of the quota in use
	MemoryPercent      float64 // used, of the device's memory, or of this process's limit
	TemperatureCelsius float64
	PowerWatts         float64
	// ClockPercent is the SM's or the CPU's clock now, of its maximum. Without work clocks are low: it tells something only
	// beside a high utilization.
	ClockPercent float64
	Throttle     Throttle
	// StolenPercent is how much of the time in which this process's threads wanted a CPU they waited for one that others had.
	StolenPercent  float64
	PCIePercent    float64 // generation times width, of their maxima; also low without work
	ECCErrors      int64   // uncorrected, since the driver was loaded; -1 = unknown
	OtherProcesses int     // that compute on this GPU, beside this one; -1 = unknown
}

// unknown is the Health of which nothing is known.
func unknown() Health {
	nan := math.NaN()
	return Health{UtilizationPercent: nan, MemoryPercent: nan, TemperatureCelsius: nan, PowerWatts: nan, ClockPercent: nan,
		StolenPercent: nan, PCIePercent: nan, ECCErrors: -1, OtherProcesses: -1}
}

// Throttle is why a device runs below its clock or a process below its speed, as bits.
type Throttle uint8

// The reasons.
const (
	ThrottleThermal  Throttle = 1 << iota // too hot
	ThrottlePower                         // at its power limit, or the power supply brakes
	ThrottleHardware                      // slowed by its hardware, for one of the reasons above or one it does not tell
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

// LostError says that a GPU no longer answers: it has fallen off the bus or needs a reset.
type LostError struct {
	GPU    GPU
	Reason string // as the driver says it
}

func (e *LostError) Error() string {
	return fmt.Sprintf("GPU %d (%s, %s) is lost: %s", e.GPU.Index, e.GPU.Name, e.GPU.UUID, e.Reason)
}
