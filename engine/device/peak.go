package device

import (
	"errors"
	"time"
)

// Peak names a hardware limit that can be measured.
type Peak int

// Hardware limits. The C ABI uses the same numbers.
const (
	PeakF32   Peak = iota + 1 // fused multiply-adds in registers, FLOP/s
	PeakBF16                  // bf16 dot products with f32 sums, FLOP/s; ErrUnsupported without such an instruction
	PeakRead                  // reading memory far larger than the caches, bytes/s
	PeakCopy                  // copying such memory; (bytes read + bytes written)/s
	PeakWrite                 // writing such memory, bytes/s
	PeakF16                   // like PeakBF16, for f16
	// Matrix products of a vendor's library, FLOP/s. They check PeakF32 and PeakBF16, whose loops may not use the best
	// instruction. If MeasurePeak already measures PeakF32 or PeakBF16 with such a product, it returns ErrUnsupported
	// here.
	PeakF32Product
	PeakBF16Product
)

// PeakMeasurer is implemented by devices that can measure their own limits, with all their threads.
type PeakMeasurer interface {
	// MeasurePeak measures for about the time limit, and returns the best of several passes.
	MeasurePeak(what Peak, limit time.Duration) (perSecond float64, err error)
}

// Reached is a measured limit.
type Reached struct {
	PerSecond float64 // FLOP/s or bytes/s
	By        string  // method that reached it
	Repeats   int     // number of measurements, of which this is the best one
}

// products maps a limit of arithmetic to the matrix product that checks it.
var products = map[Peak]Peak{PeakF32: PeakF32Product, PeakBF16: PeakBF16Product}

// MeasureBest measures a hardware limit several times and returns the largest value; repeats is the number of
// measurements. For PeakF32 and PeakBF16, it uses two methods in turn, so that other processes affect both: a loop in
// registers and a matrix product. The total time is about limit.
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
