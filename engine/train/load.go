package train

import "math"

// Load is the telemetry of a rank's device in a step. An unknown value is NaN, an unknown count -1.
type Load struct {
	UtilizationPercent float64 // of the device's time, or of a CPU quota, in use
	MemoryPercent      float64 // used, of the total
	TemperatureCelsius float64
	PowerWatts         float64
	ClockPercent       float64 // of the device's highest clock
	StolenPercent      float64 // CPU time that others used while this process wanted to run
	PCIePercent        float64 // the link's generation times width, of their maxima
	Throttle           uint8   // ThrottleThermal | …; 0: none
	ECCErrors          int     // uncorrected
	OtherProcesses     int     // other processes that compute on the device
}

// Reasons why a device runs below its full speed, as bits of Load.Throttle.
const (
	ThrottleThermal  = 1 << iota // too hot
	ThrottlePower                // at its power limit
	ThrottleHardware             // slowed by its hardware
	ThrottleQuota                // the CPU quota was used up
)

// UnknownLoad returns the load of a machine without telemetry.
func UnknownLoad() Load {
	nan := math.NaN()
	return Load{UtilizationPercent: nan, MemoryPercent: nan, TemperatureCelsius: nan, PowerWatts: nan, ClockPercent: nan, StolenPercent: nan, PCIePercent: nan,
		ECCErrors: -1, OtherProcesses: -1}
}

// loadRow is the wire format of a Load.
type loadRow struct {
	percents                  [7]float32 // in the order of Load's fields
	eccErrors, otherProcesses int32
}

func (l *Load) row() loadRow {
	return loadRow{[7]float32{float32(l.UtilizationPercent), float32(l.MemoryPercent), float32(l.TemperatureCelsius), float32(l.PowerWatts),
		float32(l.ClockPercent), float32(l.StolenPercent), float32(l.PCIePercent)}, clamp32(l.ECCErrors), clamp32(l.OtherProcesses)}
}

func (r *loadRow) load(throttle uint8) Load {
	p := &r.percents
	return Load{float64(p[0]), float64(p[1]), float64(p[2]), float64(p[3]), float64(p[4]), float64(p[5]), float64(p[6]), throttle,
		int(r.eccErrors), int(r.otherProcesses)}
}

func clamp32(n int) int32 { return int32(min(max(n, -1), math.MaxInt32)) }
