package devices

import (
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// FractionOfPeak returns the fraction of the measured peak that a computation reached. If the computation exceeded the
// peak, the measured peak is wrong, and known is false.
func FractionOfPeak(reached float64, peak device.Reached) (fraction float64, known bool) {
	if peak.PerSecond <= 0 || reached > peak.PerSecond {
		return 0, false
	}
	return reached / peak.PerSecond, true
}

// MeasuredPeak returns the measured peak of the device in matrix products, or 0 FLOP/s if the device cannot measure its
// peak.
func MeasuredPeak(dev device.Device, precision tensor.DType) device.Reached {
	m, ok := dev.(device.PeakMeasurer)
	if !ok {
		return device.Reached{}
	}
	peak, err := device.MeasureBest(m, PeakOf(dev, precision), 3, 300*time.Millisecond)
	if err != nil {
		return device.Reached{} // the fraction of the peak is then unknown
	}
	return peak
}

// PeakOf returns the kind of peak that limits a network of this element type.
func PeakOf(dev device.Device, precision tensor.DType) device.Peak {
	switch {
	case precision == tensor.BF16 && dev.Info().FastBF16:
		return device.PeakBF16
	case precision == tensor.F16 && dev.Info().Kind == "cuda":
		return device.PeakF16
	}
	return device.PeakF32
}
