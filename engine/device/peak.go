package device

import (
	"errors"
	"time"
)

// Peak names a limit of the hardware that can be measured.
type Peak int

// The limits. The numbers are also those of the C ABI.
const (
	PeakF32   Peak = iota + 1 // fused multiply-adds in registers, FLOP/s
	PeakBF16                  // bf16 dot products with f32 sums, FLOP/s; ErrUnsupported without such an instruction
	PeakRead                  // reading memory far beyond the caches, bytes/s
	PeakCopy                  // copying it, bytes read and written/s
	PeakWrite                 // writing it, bytes/s
	PeakF16                   // as PeakBF16, of f16
	// Matrix products of a library, FLOP/s: the check on loops that may not know the best instruction. ErrUnsupported where the figure of
	// the type is such a product already.
	PeakF32Product
	PeakBF16Product
)

// PeakMeasurer is what devices implement that can measure their own limits, with all their threads.
type PeakMeasurer interface {
	// MeasurePeak takes about as long as told, at best 0.2 s or more, and gives the best of several passes.
	MeasurePeak(what Peak, limit time.Duration) (perSecond float64, err error)
}

// Reached is a measured limit.
type Reached struct {
	PerSecond float64 // FLOP/s or bytes/s
	By        string  // what reached it
}

// products are the matrix products that check a limit of arithmetic.
var products = map[Peak]Peak{PeakF32: PeakF32Product, PeakBF16: PeakBF16Product}

// MeasureBest measures a limit in both ways that the device has, a loop in registers and a matrix product, and gives the larger. It takes about as
// long as told.
func MeasureBest(m PeakMeasurer, what Peak, limit time.Duration) (Reached, error) {
	product, two := products[what]
	if two {
		limit /= 2
	}
	v, err := m.MeasurePeak(what, limit)
	if err != nil {
		return Reached{}, err
	}
	best := Reached{v, "loop in registers"}
	if !two {
		return Reached{PerSecond: v}, nil
	}
	switch v, err := m.MeasurePeak(product, limit); {
	case errors.Is(err, ErrUnsupported):
	case err != nil:
		return Reached{}, err
	case v > best.PerSecond:
		best = Reached{v, "matrix product"}
	}
	return best, nil
}
