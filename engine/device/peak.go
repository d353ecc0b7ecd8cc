package device

import "time"

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
)

// PeakMeasurer is what devices implement that can measure their own limits, with all their threads.
type PeakMeasurer interface {
	// MeasurePeak takes about as long as told, at best 0.2 s or more, and gives the best of several passes.
	MeasurePeak(what Peak, limit time.Duration) (perSecond float64, err error)
}
