package straggler

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// A measured loss, such as waits for data, is a cause if it explains at least causedFraction of the lost time.
const causedFraction = 0.5

// sign is a change on a rank that can explain why the rank is slow.
type sign struct {
	cause Cause
	text  string
}

// signs returns the changes from the rank's healthy baseline, the strongest evidence first: waiting for data, then the
// signs of sensors.
func (b *baseline) signs(o *Observation, lost float64) (found []sign) {
	if was := b.dataFraction() * o.Expected; o.Data-was >= causedFraction*lost {
		found = append(found, sign{CauseData, fmt.Sprintf("waits %.3g s per step for data, was %.3g s", o.Data, was)})
	}
	healthy := b.sensors()
	for sensor, d := range telemetry.Declared {
		if d.Sign == nil {
			continue
		}
		if d.Slowdown != nil && !(o.Seconds-o.Seconds/d.Slowdown(&o.Health, &healthy) >= causedFraction*lost) {
			continue // for example, a quota that stops a rank for 6 % of its time does not explain a factor of 3
		}
		if text := d.Sign(&o.Health, &healthy); text != "" {
			found = append(found, sign{firstSensorCause + Cause(sensor), text})
		}
	}
	return found
}

// knownSlowdown returns the log of the largest slowdown relative to the healthy baseline that a sensor measures, or 0.
// It ignores rises within the usual spread of the sensor.
func (b *baseline) knownSlowdown(o *Observation) (most float64) {
	healthy := b.sensors()
	for sensor, d := range telemetry.Declared {
		if d.Slowdown == nil || !(o.Health.Value[sensor]-healthy[sensor] > sigmas*b.spread(sensor)) {
			continue
		}
		if x := math.Log(d.Slowdown(&o.Health, &healthy)); x > most && !math.IsInf(x, 1) {
			most = x
		}
	}
	return most
}

// assumedSpread is the standard deviation of a sensor in percent from window to window, before it is known.
const assumedSpread = 5.0

// spread returns the standard deviation of a sensor in healthy windows, mixed with the assumed one.
func (b *baseline) spread(sensor int) float64 {
	n := float64(b.count[sensor])
	return math.Sqrt((assumedWindows*assumedSpread*assumedSpread + n*b.variance[sensor]) / (assumedWindows + n))
}

// baseline contains the usual sensor values of a healthy rank. For example, a laptop that always runs at 60 % of its
// clock is healthy at 60 %. Each value is a mean over the first windows, and later an exponential average with a small
// weight of each window.
type baseline struct {
	// one value for each sensor; the last one is the waits for data, in units of the expected compute time
	mean  [telemetry.Count + 1]float64
	count [telemetry.Count + 1]int

	variance [telemetry.Count + 1]float64
}

// learn adds the window of a healthy rank.
func (b *baseline) learn(o *Observation) {
	for i, v := range o.Health.Value {
		b.add(i, v)
	}
	b.add(int(telemetry.Count), o.Data/o.Expected)
}

func (b *baseline) add(i int, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	b.count[i] = min(b.count[i]+1, historyWindows)
	weight := 1 / float64(b.count[i])
	d := v - b.mean[i]
	b.mean[i] += weight * d
	b.variance[i] = (1 - weight) * (b.variance[i] + weight*d*d)
}

// sensors returns the healthy means, NaN for sensors without a known value.
func (b *baseline) sensors() telemetry.Sample {
	s := telemetry.Unknown()
	for i := range s {
		if b.count[i] > 0 {
			s[i] = b.mean[i]
		}
	}
	return s
}

// dataFraction returns the usual waits for data in units of the expected compute time.
func (b *baseline) dataFraction() float64 { return b.mean[telemetry.Count] }
