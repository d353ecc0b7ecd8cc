package straggler

import (
	"slices"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// Kind is the result of a Verdict.
type Kind int

const (
	Healthy  Kind = iota // as fast as its own curve predicts, and not a straggler
	SlowType             // as fast as its own curve predicts, but its type of device takes longer per sample
	Sick                 // slower than its own curve predicts: the device has a problem, and Cause names it
)

// String implements fmt.Stringer.
func (k Kind) String() string { return kinds[k] }

var kinds = [...]string{"healthy", "slow type", "sick"}

// ParseKind returns the kind whose String is the text. ok is false if there is none.
func ParseKind(text string) (k Kind, ok bool) {
	at := slices.Index(kinds[:], text)
	return Kind(max(at, 0)), at >= 0
}

// Cause is the reason why a rank is sick.
type Cause int

const (
	CauseNone    Cause = iota // the rank is not sick
	CauseUnknown              // the rank is slower, and no measurement explains why
	CauseData                 // the rank waits for data
	CauseNetwork              // the links of the rank have become slower, more than those of other ranks

	firstSensorCause // the causes of sensors follow, in the order of telemetry.Declared
)

// Causes that sensors explain.
const (
	CauseHardware     = firstSensorCause + Cause(telemetry.HardwareSlowdown)
	CauseThermal      = firstSensorCause + Cause(telemetry.ThermalThrottling)
	CausePower        = firstSensorCause + Cause(telemetry.PowerLimit)
	CauseQuota        = firstSensorCause + Cause(telemetry.CPUQuota)
	CausePCIe         = firstSensorCause + Cause(telemetry.PCIe)
	CauseECC          = firstSensorCause + Cause(telemetry.ECCErrors)
	CauseOtherProcess = firstSensorCause + Cause(telemetry.OtherProcesses)
	CauseStolenCPU    = firstSensorCause + Cause(telemetry.StolenCPU)
	CauseMemory       = firstSensorCause + Cause(telemetry.Memory)
	CauseClock        = firstSensorCause + Cause(telemetry.Clock)
)

// String implements fmt.Stringer.
func (c Cause) String() string {
	if c >= firstSensorCause {
		return telemetry.Declared[c-firstSensorCause].Cause
	}
	return [...]string{"none", "unknown", "data starvation", "network"}[c]
}

// Verdict is the verdict on one rank. It begins after two bad windows, and ends after two good windows.
type Verdict struct {
	Rank      int
	Kind      Kind
	Cause     Cause   // CauseNone unless Kind is Sick
	Ratio     float64 // Sick: time / healthy time; SlowType: time per sample / median of the ranks; Healthy: 1
	Evidence  string  // "thermal throttling for 12 of 20 samples at 93 °C; clock 58 % of its maximum, was 96 %"
	SinceStep int64   // step of the first bad window
}
