package balancer

import (
	"fmt"
	"math"
)

// From which change on a figure is a sign. Only a rank that is slower than its own curve is searched for signs, so they
// may be small.
const (
	signThrottled = 0.2  // share of samples that more are throttled than was normal
	signDrop      = 0.9  // of its normal value: clock, power, PCIe link
	signStolen    = 5.0  // percentage points of CPU time
	signMemory    = 5.0  // percentage points, above
	fullMemory    = 90.0 // percent
	signProcess   = 0.5  // other processes
	dataShare     = 0.5  // of the lost time that data must have taken to be the cause
)

// sign is something that changed on a rank and can have made it slow.
type sign struct {
	cause Cause
	text  string
}

// signs lists what changed against the rank's healthy baseline, what is most telling first: what the time was spent on,
// what the driver says, what it sees, and last the symptoms.
func (b *baseline) signs(o *Observation, lost float64) (found []sign) {
	f := figures(o)
	nan := math.NaN()
	add := func(cause Cause, format string, args ...any) {
		found = append(found, sign{cause, fmt.Sprintf(format, args...)})
	}

	if was := b.was(dataOf, 0) * o.Expected; o.Data-was >= dataShare*lost {
		add(CauseData, "waits %.3g s a step for data, was %.3g s", o.Data, was)
	}
	if text := b.throttling(o, ThrottleHardware, hardwareOf, f, 0); text != "" {
		add(CauseHardware, "hardware slowdown%s", text)
	}
	if text := b.throttling(o, ThrottleThermal, thermalOf, f, 0); text != "" {
		add(CauseThermal, "thermal throttling%s%s", text, atTemperature(f[temperatureOf]))
	}
	if text := b.powerCap(o, f); text != "" {
		add(CausePower, "power limit reached%s", text)
	}
	if text := b.throttling(o, ThrottleQuota, quotaOf, f, 0); text != "" {
		add(CauseQuota, "CPU quota used up%s", text)
	}
	if was := b.was(pcieOf, 100); f[pcieOf] < signDrop*was {
		add(CausePCIe, "PCIe link at %.0f %% of its full bandwidth, was %.0f %%", f[pcieOf], was)
	}
	if was := b.was(errorsOf, 0); f[errorsOf] >= math.Max(1, 2*was) {
		add(CauseECC, "%.0f ECC errors in the window, was %.2g", f[errorsOf], was)
	}
	if was := b.was(othersOf, nan); f[othersOf]-was >= signProcess {
		add(CauseOtherProcess, "other processes on the device: %.0f, was %.2g", f[othersOf], was)
	}
	if was := b.was(stolenOf, nan); f[stolenOf]-was >= signStolen {
		add(CauseStolenCPU, "%.0f %% of the CPU time taken by others, was %.0f %%", f[stolenOf], was)
	}
	if was := b.was(memoryOf, nan); f[memoryOf] >= fullMemory && f[memoryOf]-was >= signMemory {
		add(CauseMemory, "memory %.0f %% full, was %.0f %%", f[memoryOf], was)
	}
	if was := b.was(clockOf, nan); f[clockOf] < signDrop*was {
		add(CauseClock, "clock %.0f %% of its maximum, was %.0f %%", f[clockOf], was)
	}
	return found
}

// throttling is " for 12 of 20 samples" where more are throttled than was normal, else "".
func (b *baseline) throttling(o *Observation, reason Throttle, figure int, f [baselines]float64, should float64) string {
	was := b.was(figure, should)
	if !(f[figure]-was >= signThrottled) {
		return ""
	}
	return samplesOf(o, reason, was)
}

func samplesOf(o *Observation, reason Throttle, was float64) string {
	samples, of := o.Health.throttled(reason)
	text := fmt.Sprintf(" for %d of %d samples", samples, of)
	if was >= 0.005 {
		text += fmt.Sprintf(", was %.0f %%", 100*was)
	}
	return text
}

func atTemperature(celsius float64) string {
	if math.IsNaN(celsius) {
		return ""
	}
	return fmt.Sprintf(" at %.0f °C", celsius)
}

// powerCap knows that a healthy GPU at full load is often at its power limit: there the limit itself must have fallen.
func (b *baseline) powerCap(o *Observation, f [baselines]float64) string {
	nan := math.NaN()
	was, watts, clock := b.was(powerCapOf, nan), b.was(powerOf, nan), b.was(clockOf, nan)
	more := f[powerCapOf]-was >= signThrottled
	lower := f[powerCapOf] >= signThrottled && f[powerOf] < signDrop*watts && f[clockOf] < signDrop*clock
	if !more && !lower {
		return ""
	}
	text := samplesOf(o, ThrottlePower, was)
	if !math.IsNaN(f[powerOf]) && !math.IsNaN(watts) {
		text += fmt.Sprintf(" at %.0f W, was %.0f W", f[powerOf], watts)
	}
	return text
}
