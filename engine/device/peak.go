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
	// MeasurePeak takes about as long as told and gives the best of several passes.
	MeasurePeak(what Peak, limit time.Duration) (perSecond float64, err error)
}

// Reached is a measured limit.
type Reached struct {
	PerSecond float64 // FLOP/s or bytes/s
	By        string  // what reached it
	Repeats   int     // measurements, of which this is the best
}

// products are the matrix products that check a limit of arithmetic.
var products = map[Peak]Peak{PeakF32: PeakF32Product, PeakBF16: PeakBF16Product}

// MeasureBest measures a limit repeats times in both ways that the device has, a loop in registers and a matrix product, and gives the largest
// figure. The two take turns, so a moment in which other processes use the device spoils neither. The whole takes about as long as limit.
func MeasureBest(m PeakMeasurer, what Peak, repeats int, limit time.Duration) (best Reached, err error) {
	product, two := products[what]
	one := limit / time.Duration(repeats)
	loop := ""
	if two {
		one, loop = one/2, "loop in registers"
	}
	keep := func(by string, v float64) {
		if v > best.PerSecond {
			best = Reached{PerSecond: v, By: by}
		}
	}
	for range repeats {
		v, err := m.MeasurePeak(what, one)
		if err != nil {
			return Reached{}, err
		}
		keep(loop, v)
		if !two {
			continue
		}
		v, err = m.MeasurePeak(product, one)
		switch {
		case errors.Is(err, ErrUnsupported):
			two = false
		case err != nil:
			return Reached{}, err
		}
		keep("matrix product", v)
	}
	best.Repeats = repeats
	return best, nil
}
