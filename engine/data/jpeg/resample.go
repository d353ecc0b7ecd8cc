package jpeg

// Taps are the weights of one axis. Output k is the sum over i < Num[k] of Weight[k*Width+i] times input Start[k]+i.
// Weights are in 22-bit fixed point.
type Taps struct {
	Start, Num []int32 // one entry per output
	Weight     []int32 // (outputs, Width), not negative; the sum of a row is about 1<<22
	Width      int
}

// Resample resamples src along rows, then along columns, to dst (outputs of y, outputs of x, 3). src is an 8-bit RGB
// image with width pixels per row. The slice rows is a buffer for the intermediate result (input rows of y, outputs of
// x, 3). The weights must refer only to pixels of src. Without the native library, Resample does nothing and returns
// false.
func Resample(dst, src []byte, width int, x, y Taps, rows []byte) bool {
	lib, _ := openLibrary()
	if lib == nil {
		return false
	}
	lib.resample(dst, src, width, x, y, rows)
	return true
}
