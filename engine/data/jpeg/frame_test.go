package jpeg

import (
	"bytes"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// odd describes an image that image/jpeg cannot encode.
type odd struct {
	width, height int
	factors       [][2]int // sampling factors of each channel, horizontal and vertical
	open          bool     // the file has no end marker
}

// encode returns an image of flat blocks. Each block differs from the block before it in the same channel, so that all
// of its bits matter.
func (o odd) encode() []byte {
	var b bytes.Buffer
	b.Write([]byte{0xFF, 0xD8})
	b.Write(segment(0xDB, append([]byte{0}, bytes.Repeat([]byte{8}, 64)...)...))
	head := []byte{8, byte(o.height >> 8), byte(o.height), byte(o.width >> 8), byte(o.width), byte(len(o.factors))}
	scan := []byte{byte(len(o.factors))}
	mostH, mostV := 1, 1
	for c, f := range o.factors {
		head, scan = append(head, byte(c+1), byte(f[0]<<4|f[1]), 0), append(scan, byte(c+1), 0)
		mostH, mostV = max(mostH, f[0]), max(mostV, f[1])
	}
	b.Write(segment(0xC0, head...))
	lengths := []byte{0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0} // numbers of standard DC codes by length
	b.Write(segment(0xC4, append(append([]byte{0x00}, lengths...), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)...))
	b.Write(segment(0xC4, append([]byte{0x10, 0, 1}, make([]byte, 15)...)...)) // AC: two bits end the block
	b.Write(segment(0xDA, append(scan, 0, 63, 0)...))

	var pending, count uint
	put := func(value, n uint) {
		for n > 0 {
			n--
			pending, count = pending<<1|value>>n&1, count+1
			if count == 8 {
				if b.WriteByte(byte(pending)); byte(pending) == 0xFF {
					b.WriteByte(0)
				}
				pending, count = 0, 0
			}
		}
	}
	codes := []struct{ value, n uint }{{0, 2}, {2, 3}, {3, 3}, {4, 3}, {5, 3}, {6, 3}, {14, 4}, {30, 5}, {62, 6}}
	levels := make([]int, len(o.factors))
	across, down := (o.width+8*mostH-1)/(8*mostH), (o.height+8*mostV-1)/(8*mostV)
	for unit := range across * down {
		for c, f := range o.factors {
			for k := range f[0] * f[1] {
				to := []int{40, -30, 25, 10}[c] + 7*((unit+c+k)%7)
				change := to - levels[c]
				levels[c] = to
				size := bits.Len(uint(max(change, -change)))
				put(codes[size].value, codes[size].n)
				if change < 0 {
					change += 1<<size - 1
				}
				put(uint(change), uint(size))
				put(0, 2)
			}
		}
	}
	for count > 0 {
		put(1, 1)
	}
	if !o.open {
		b.Write([]byte{0xFF, 0xD9})
	}
	return b.Bytes()
}

func (o odd) String() string { return fmt.Sprintf("%d x %d, factors %v", o.width, o.height, o.factors) }

// equal returns the sampling factors of n channels of equal size.
func equal(n int) [][2]int { return [][2]int{{1, 1}, {1, 1}, {1, 1}, {1, 1}}[:n] }

func TestAnySamplingOfTheColoursIsDecoded(t *testing.T) {
	for name, d := range decoders(t) {
		for _, factors := range [][][2]int{
			{{2, 2}, {1, 1}, {1, 2}}, {{2, 2}, {1, 1}, {2, 2}}, {{2, 1}, {2, 1}, {1, 1}}, {{1, 2}, {1, 1}, {1, 1}},
			{{4, 1}, {1, 1}, {1, 1}}, {{4, 2}, {1, 1}, {1, 1}},
		} {
			o := odd{width: 47, height: 33, factors: factors}
			pix, w, h, err := decode(d, o.encode(), 1)
			if err != nil || w != 47 || h != 33 {
				t.Errorf("%s, %v: %d x %d, %v", name, factors, w, h, err)
				continue
			}
			if bytes.Count(pix, pix[:3]) == w*h {
				t.Errorf("%s, %v: all pixels are equal", name, factors)
			}
			if width, height, channels, depth, err := Shape(o.encode()); width != 47 || height != 33 ||
				channels != 3 || depth != 8 || err != nil {
				t.Errorf("%v: shape %d x %d, %d channels of %d bits, %v", factors, width, height, channels, depth, err)
			}
		}
	}
}

// A phone may store a video after a photograph in the same file. The bytes of the video can look like scans of the
// image.
func TestBytesBehindTheImageDoNotCount(t *testing.T) {
	image := odd{width: 640, height: 480, factors: equal(3)}.encode()
	behind := make([]byte, 1<<20)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range behind {
		behind[i] = byte(random.Uint32())
	}
	behind = append(behind, bytes.Repeat([]byte{0xFF, 0xDA}, 2*maxScans)...)
	for name, d := range decoders(t) {
		want, _, _, err := decode(d, image, 1)
		if err != nil {
			t.Fatal(err)
		}
		got, _, _, err := decode(d, append(bytes.Clone(image), behind...), 1)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: other pixels, or %v", name, err)
		}
	}
}

// The segments of an image can contain a thumbnail and a colour profile. Their bytes can look like scans and end
// markers.
func TestBytesOfSegmentsDoNotCount(t *testing.T) {
	image := odd{width: 32, height: 32, factors: equal(3)}.encode()
	thumbnail := segment(0xE1, bytes.Repeat([]byte{0xFF, 0xDA, 0xFF, 0xD9}, maxScans)...)
	with := append(append(bytes.Clone(image[:2]), thumbnail...), image[2:]...)
	for name, d := range decoders(t) {
		if _, _, _, err := decode(d, with, 1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, _, err := decode(d, with[:len(with)-40], 1); err == nil {
			t.Errorf("%s: a truncated image is decoded, because its thumbnail has an end marker", name)
		}
	}
}

// If only the end marker is missing, the image is accepted. If pixels are missing, it is refused.
func TestAMissingEndMarkerIsHarmlessIfAllPixelsAreThere(t *testing.T) {
	for name, d := range decoders(t) {
		t.Run(name, func(t *testing.T) { missingEndMarker(t, d) })
	}
}

func missingEndMarker(t *testing.T, d *Decoder) {
	o := odd{width: 64, height: 48, factors: [][2]int{{2, 2}, {1, 1}, {1, 1}}}
	want, _, _, err := decode(d, o.encode(), 1)
	if err != nil {
		t.Fatal(err)
	}
	o.open = true
	contents := o.encode()
	for _, end := range [][]byte{nil, {0xFF}} {
		got, _, _, err := decode(d, append(bytes.Clone(contents), end...), 1)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("without an end marker, % x: other pixels, or %v", end, err)
		}
	}
	for _, cut := range []int{2, 3, 10, 30} {
		if _, _, _, err := decode(d, contents[:len(contents)-cut], 1); err == nil {
			t.Errorf("%d bytes of pixels are missing, and the image is decoded", cut)
		}
	}
	zeros := append(bytes.Clone(contents[:len(contents)-10]), make([]byte, 200)...) // as after a crash of the machine
	if _, _, _, err := decode(d, zeros, 1); err == nil {
		t.Error("zeros in place of pixels are decoded")
	}
	several := progressive(64, 48, 5)
	if _, _, _, err := decode(d, several[:len(several)-2], 1); err == nil {
		t.Error("an image of several scans without an end marker is decoded, although scans may be missing")
	}
}

func TestFourInksWithoutAdobesMarkerAreStoredAsWithIt(t *testing.T) {
	plain := odd{width: 32, height: 24, factors: equal(4)}.encode()
	// its last byte, 0, states that the inks are not transformed
	marker := segment(0xEE, 'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, 0)
	adobe := append(append(bytes.Clone(plain[:2]), marker...), plain[2:]...)
	for name, d := range decoders(t) {
		want, _, _, err := decode(d, adobe, 1)
		if err != nil {
			t.Fatal(err)
		}
		got, w, h, err := decode(d, plain, 1)
		if err != nil || w != 32 || h != 24 || !bytes.Equal(got, want) {
			t.Errorf("%s: %d x %d, other pixels than with the marker, or %v", name, w, h, err)
		}
	}
}

func FuzzFrame(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed)
	}
	f.Add(odd{width: 20, height: 20, factors: equal(4), open: true}.encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		frame := frameOf(data)
		if frame.end > len(data) || frame.ended && !bytes.HasSuffix(data[:frame.end], []byte{0xD9}) {
			t.Fatal(fmt.Sprintf("%+v of %d bytes", frame, len(data)))
		}
	})
}
