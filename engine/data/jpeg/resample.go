package jpeg

// Taps are the weights of one axis: output k is the sum over i < Num[k] of Weight[k*Width+i] times input Start[k]+i, in
// 22-bit fixed point.
type Taps struct {
	Start, Num []int32 // one an output
	Weight     []int32 // (outputs, Width), not negative, sums to about 1<<22 a row
	Width      int
}

// Resample resamples src, an image of 8-bit RGB of width pixels a row, along rows and then along columns, to dst
// (outputs of y, outputs of x, 3); rows has room for what lies between, (input rows of y, outputs of x, 3). It reports
// false, having done nothing, where the native library is not in use. The caller vouches for the weights' bounds.
func Resample(dst, src []byte, width int, x, y Taps, rows []byte) bool {
	lib, _ := openLibrary()
	if lib == nil {
		return false
	}
	lib.resample(dst, src, width, x, y, rows)
	return true
}
