package devices

import (
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// FractionOfPeak is the fraction of a measured peak that a computation reaches. A peak that it exceeds is wrong, so the fraction is not known.
func FractionOfPeak(reached float64, peak device.Reached) (share float64, known bool) {
	if peak.PerSecond <= 0 || reached > peak.PerSecond {
		return 0, false
	}
	return reached / peak.PerSecond, true
}

// MeasuredPeak is what the device reaches in matrix products at best, 0 FLOP/s where it cannot tell.
func MeasuredPeak(dev device.Device, precision tensor.DType) device.Reached {
	m, ok := dev.(device.PeakMeasurer)
	if !ok {
		return device.Reached{}
	}
	peak, err := device.MeasureBest(m, PeakOf(dev, precision), 3, 300*time.Millisecond)
	if err != nil {
		return device.Reached{} // only the fraction of the peak is missing then
	}
	return peak
}

// PeakOf is the limit that a network of this precision works against.
func PeakOf(dev device.Device, precision tensor.DType) device.Peak {
	switch {
	case precision == tensor.BF16 && dev.Info().FastBF16:
		return device.PeakBF16
	case precision == tensor.F16 && dev.Info().Kind == "cuda":
		return device.PeakF16
	}
	return device.PeakF32
}
