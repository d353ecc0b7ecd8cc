package balancer

import "math"

// Throttle says why a device runs slower than it could, as its driver reports it.
type Throttle uint8

const (
	ThrottleThermal  Throttle = 1 << iota // too hot
	ThrottlePower                         // at its power limit
	ThrottleHardware                      // hardware slowdown: power brake, external assertion
	ThrottleQuota                         // the container's CPU quota was used up

	throttles = 4
)

// Health is what telemetry says about a rank's device: one sample, or what a HealthWindow made of several. What is not
// known is NaN, Throttle is then 0.
type Health struct {
	UtilizationPercent float64
	MemoryPercent      float64
	TemperatureCelsius float64
	PowerWatts         float64
	ClockPercent       float64 // SM clock of its maximum; of a CPU its frequency of the highest
	StolenPercent      float64 // CPU: time it was ready to run and others ran, of all
	PCIePercent        float64 // generation and width of the link, as bandwidth of the device's full one
	ECCErrors          float64 // since the sample before, in a window their sum
	OtherProcesses     float64 // GPU: processes on it that are not of this run, in a window the most

	Throttle  Throttle       // every reason seen
	Samples   int            // that this is made of; 0 counts as 1
	Throttled [throttles]int // of them, those with each reason; where Samples is 0 Throttle says it
}

// UnknownHealth is that of a device without telemetry.
func UnknownHealth() Health {
	nan := math.NaN()
	return Health{UtilizationPercent: nan, MemoryPercent: nan, TemperatureCelsius: nan, PowerWatts: nan, ClockPercent: nan,
		StolenPercent: nan, PCIePercent: nan, ECCErrors: nan, OtherProcesses: nan}
}

// throttled is how many samples of how many had a reason, which is a single bit.
func (h *Health) throttled(reason Throttle) (samples, of int) {
	if h.Samples > 0 {
		for i := range h.Throttled {
			if reason == 1<<i {
				return h.Throttled[i], h.Samples
			}
		}
	}
	if h.Throttle&reason != 0 {
		return 1, 1
	}
	return 0, 1
}

// HealthWindow makes one Health of the samples of a window: means of what is known, the worst PCIe link, the most other
// processes, the sum of errors, and how many samples were throttled and why. The zero value is an empty window.
type HealthWindow struct {
	sum     [6]float64
	known   [6]int
	worst   Health
	samples int
}

// Add takes one sample.
func (w *HealthWindow) Add(h Health) {
	if w.samples == 0 {
		w.worst = UnknownHealth()
	}
	w.samples++
	for i, v := range [...]float64{h.UtilizationPercent, h.MemoryPercent, h.TemperatureCelsius, h.PowerWatts, h.ClockPercent, h.StolenPercent} {
		if !math.IsNaN(v) {
			w.sum[i] += v
			w.known[i]++
		}
	}
	w.worst.PCIePercent = known(math.Min, w.worst.PCIePercent, h.PCIePercent)
	w.worst.OtherProcesses = known(math.Max, w.worst.OtherProcesses, h.OtherProcesses)
	w.worst.ECCErrors = known(func(a, b float64) float64 { return a + b }, w.worst.ECCErrors, h.ECCErrors)
	w.worst.Throttle |= h.Throttle
	for i := range throttles {
		if h.Throttle&(1<<i) != 0 {
			w.worst.Throttled[i]++
		}
	}
}

// Health is that of the window so far.
func (w *HealthWindow) Health() Health {
	if w.samples == 0 {
		return UnknownHealth()
	}
	out := w.worst
	out.Samples = w.samples
	for i, to := range [...]*float64{&out.UtilizationPercent, &out.MemoryPercent, &out.TemperatureCelsius, &out.PowerWatts, &out.ClockPercent, &out.StolenPercent} {
		if w.known[i] > 0 {
			*to = w.sum[i] / float64(w.known[i])
		}
	}
	return out
}

// Reset begins the next window.
func (w *HealthWindow) Reset() { *w = HealthWindow{} }

// known joins two values of which either may be NaN.
func known(join func(a, b float64) float64, a, b float64) float64 {
	switch {
	case math.IsNaN(a):
		return b
	case math.IsNaN(b):
		return a
	}
	return join(a, b)
}

// What a rank is like while it is healthy, as indices of baseline.
const (
	clockOf = iota
	powerOf
	temperatureOf
	memoryOf
	stolenOf
	pcieOf
	errorsOf
	othersOf
	thermalOf // share of samples throttled, and so on
	powerCapOf
	hardwareOf
	quotaOf
	dataOf // share of the expected compute time that goes into waiting for data
	baselines
)

// baseline learns what is normal for a rank: a laptop that always runs at 60 % of its clock is healthy at 60 %. Each is
// a mean over the first windows, and then one that forgets slowly.
type baseline struct {
	mean  [baselines]float64
	count [baselines]int
}

// figures are a window's, NaN where unknown.
func figures(o *Observation) (f [baselines]float64) {
	h := &o.Health
	f = [baselines]float64{clockOf: h.ClockPercent, powerOf: h.PowerWatts, temperatureOf: h.TemperatureCelsius, memoryOf: h.MemoryPercent,
		stolenOf: h.StolenPercent, pcieOf: h.PCIePercent, errorsOf: h.ECCErrors, othersOf: h.OtherProcesses, dataOf: o.Data / o.Expected}
	for i := range throttles {
		samples, of := h.throttled(1 << i)
		f[thermalOf+i] = float64(samples) / float64(of)
	}
	return f
}

func (b *baseline) learn(f *[baselines]float64) {
	for i, v := range f {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		b.count[i] = min(b.count[i]+1, historyWindows)
		b.mean[i] += (v - b.mean[i]) / float64(b.count[i])
	}
}

// was is what a figure was like, or what it should be for a rank that was never seen healthy.
func (b *baseline) was(i int, should float64) float64 {
	if b.count[i] == 0 {
		return should
	}
	return b.mean[i]
}
