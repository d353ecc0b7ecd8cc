package pixels

import "testing"

// BenchmarkColour changes the colours of 224 x 224 pixels, as color jitter with 0.4 and a hue of 0.1 does.
func BenchmarkColour(b *testing.B) {
	const size = 224
	photo := make([]byte, size*size*3) // smooth shades with noise
	grain := uint32(1)
	for i := range photo {
		x, y, ch := i/3%size, i/3/size, i%3
		grain = grain*1664525 + 1013904223
		photo[i] = byte((x*(ch+1)+y*(3-ch))/4 + int(grain>>28))
	}
	pix := make([]byte, len(photo))
	for _, op := range []struct {
		name  string
		apply func([]byte)
	}{
		{"brightness", func(p []byte) { Brightness(p, 1.3) }},
		{"contrast", func(p []byte) { Contrast(p, 1.3) }},
		{"saturation", func(p []byte) { Saturation(p, 1.3) }},
		{"hue", func(p []byte) { Hue(p, 0.07) }},
	} {
		b.Run(op.name, func(b *testing.B) {
			b.SetBytes(int64(len(pix)))
			for b.Loop() {
				copy(pix, photo)
				op.apply(pix)
			}
		})
	}
}
