package jpeg

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"testing"
)

// golden returns an image of testdata.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	contents, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return contents
}

// with returns an image in which the segments are inserted before the first marker of the given kind.
func with(t testing.TB, image []byte, marker byte, segments ...[]byte) []byte {
	t.Helper()
	at := bytes.Index(image, []byte{0xFF, marker})
	if at < 0 {
		t.Fatalf("the image has no marker %#02x", marker)
	}
	return append(append(bytes.Clone(image[:at]), bytes.Join(segments, nil)...), image[at:]...)
}

// without returns an image without the segments of a marker. first is the first of these segments.
func without(t testing.TB, image []byte, marker byte) (rest, first []byte) {
	t.Helper()
	for at := bytes.Index(image, []byte{0xFF, marker}); at >= 0; at = bytes.Index(image, []byte{0xFF, marker}) {
		end := at + 2 + int(image[at+2])<<8 + int(image[at+3])
		if first == nil {
			first = bytes.Clone(image[at:end])
		}
		image = append(bytes.Clone(image[:at]), image[end:]...)
	}
	if first == nil {
		t.Fatalf("the image has no marker %#02x", marker)
	}
	return image, first
}

// elsewhere reports whether another machine may be able to read the image. data.corrupt = "skip" does not skip such an
// error.
func elsewhere(err error) bool {
	var e interface{ Unavailable() bool }
	return errors.As(err, &e) && e.Unavailable()
}

// If an image is damaged, it must be replaced on all ranks. Its error must therefore not say that another machine may
// read it.
func TestOnlyAForeignImageIsForAnotherMachine(t *testing.T) {
	head := segment(0xC0, 8, 0, 16, 0, 16, 1, 1, 0x11, 0)
	plain := odd{width: 16, height: 16, factors: equal(1)}.encode()
	bare, _ := without(t, plain, 0xC0)
	for kind := byte(0xC3); kind <= 0xCF; kind++ {
		if kind == 0xC4 || kind == 0xCC {
			continue
		}
		other := bytes.Clone(head)
		other[1] = kind
		d := &Decoder{}
		foreign := kind == lossless || kind == arithmetic || kind == progressiveArithmetic
		for place, c := range map[string]struct {
			image []byte
			want  bool
		}{
			"alone":                {with(t, bare, 0xDA, other), foreign},
			"with another size":    {with(t, bare, 0xDA, segment(kind, 12, 0, 16, 0, 16, 1, 1, 0x11, 0)), false},
			"before another frame": {with(t, plain, 0xC0, other), false},
			"after another frame":  {with(t, plain, 0xDA, other), false},
			"behind the pixels":    {with(t, plain, 0xD9, other), false},
		} {
			if _, _, _, err := decode(d, c.image, 1); err == nil || elsewhere(err) != c.want {
				t.Errorf("frame %#02x %s: got %v; for another machine: %v, want %v", kind, place, err, elsewhere(err),
					c.want)
			}
		}
	}
}

// libturbojpeg keeps the tables of an image. It must not use them for the next image.
func TestTablesOfAnEarlierImageAreNotUsed(t *testing.T) {
	other := with(t, golden(t, "q1-37x27.jpg"), 0xDA, // Huffman tables that cannot decode the next image
		segment(0xC4, append(append([]byte{0x00, 0, 3}, make([]byte, 14)...), 0, 1, 2)...),
		segment(0xC4, append(append([]byte{0x10, 0, 3}, make([]byte, 14)...), 0, 1, 2)...))
	motion := golden(t, "motion-37x27.jpg")
	noQuant, _ := without(t, golden(t, "420-37x27.jpg"), 0xDB)
	noCodes, _ := without(t, golden(t, "progressive-37x27.jpg"), 0xC4)
	oneQuant := bytes.Clone(golden(t, "420-37x27.jpg"))
	oneQuant[bytes.LastIndex(oneQuant, []byte{0xFF, 0xDB})+4] = 2 // instead of 1, so that table 1 is missing
	for name, d := range decoders(t) {
		decode(d, other, 1) // leaves its tables in the decoder; this call may fail
		if pix, _, _, err := decode(d, motion, 1); err != nil || !bytes.Equal(pix, golden(t, "motion-37x27.jpg.rgb")) {
			t.Errorf("%s: Motion JPEG after another image: other pixels, or %v", name, err)
		}
		for what, image := range map[string][]byte{"quantization tables": noQuant, "Huffman tables": noCodes,
			"a quantization table": oneQuant} {
			if _, _, _, err := decode(d, golden(t, "q1-37x27.jpg"), 1); err != nil {
				t.Fatal(err)
			}
			if _, _, _, err := decode(d, image, 1); err == nil {
				t.Errorf("%s: an image without %s is decoded", name, what)
			}
		}
	}
}

// libturbojpeg does not warn of the damage in these images. Both decoders must return the same pixels.
func TestSilentDamageGivesEqualPixels(t *testing.T) {
	native, plain := nativeDecoder(t), golden(t, "444-37x27.jpg")
	many := golden(t, "q100-37x27.jpg")
	scan := bytes.Index(plain, []byte{0xFF, 0xDA})
	sameIDs := bytes.Clone(plain)
	frame := bytes.Index(plain, []byte{0xFF, 0xC0})
	for i := range 3 {
		sameIDs[frame+10+3*i], sameIDs[scan+5+2*i] = 7, 7
	}
	wide := bytes.Clone(plain)
	quant := bytes.Index(plain, []byte{0xFF, 0xDB})
	for i := quant + 5; i < quant+69; i++ {
		wide[i] = 255
	}
	padded := bytes.Clone(many)
	pixels := bytes.Index(many, []byte{0xFF, 0xDA}) + 14
	if at := bytes.Index(many[pixels:], []byte{0xFF, 0}); at < 0 {
		t.Fatal("no byte 0xFF in the pixels")
	} else {
		padded = append(padded[:pixels+at], append([]byte{0xFF}, padded[pixels+at:]...)...)
	}
	images := map[string][]byte{
		"channels with the same id": sameIDs,
		"an unused table with too many codes": with(t, plain, 0xDA,
			segment(0xC4, append(append([]byte{0x13, 3}, make([]byte, 15)...), 1, 2, 3)...)),
		"large coefficients": wide, "padded bytes": padded, "no codes": noCodes(),
	}
	for name, image := range images {
		for _, n := range []int{1, 2, 4, 8} {
			want, w, h, err := decode(native, image, n)
			if err != nil {
				t.Errorf("%s: libturbojpeg: %v", name, err)
				continue
			}
			if err := native.native.decode(image, n, make([]byte, 3*w*h)); err != nil {
				t.Errorf("%s: libturbojpeg warns of it, so the image tests nothing: %v", name, err)
			}
			got, _, _, err := decode(&Decoder{}, image, n)
			if exact := runtime.GOARCH == "amd64" || name != "large coefficients"; err != nil ||
				exact && !bytes.Equal(got, want) {
				t.Errorf("%s, 1/%d: other pixels, or %v", name, n, err)
			}
		}
	}
}

// noCodes returns a grey image of 64 x 64 pixels. Each block has bits that are not a Huffman code. The image is long
// enough for the fast path of libturbojpeg, which does not warn.
func noCodes() []byte {
	var b bytes.Buffer
	b.Write([]byte{0xFF, 0xD8})
	b.Write(segment(0xDB, append([]byte{0}, bytes.Repeat([]byte{1}, 64)...)...))
	b.Write(segment(0xC0, 8, 0, 64, 0, 64, 1, 1, 0x11, 0))
	b.Write(segment(0xC4, append(append([]byte{0x00, 1}, make([]byte, 15)...), 4)...)) // DC: 0 and 4 bits
	b.Write(segment(0xC4, append(append([]byte{0x10, 1}, make([]byte, 15)...), 1)...)) // AC: 0 and 1 bit
	b.Write(segment(0xDA, 1, 1, 0x00, 0, 63, 0))
	// A block has 5 bits of DC and one coefficient of 2 bits. Then come 17 bits that begin with 1. They are not a code
	// and end the block.
	block := "0" + "1010" + "01" + "10101010101010101"
	var bits, count uint
	for range 64 {
		for _, c := range block {
			bits, count = bits<<1|uint(c-'0'), count+1
			if count == 8 {
				b.WriteByte(byte(bits))
				bits, count = 0, 0
			}
		}
	}
	b.Write([]byte{0xFF, 0xFE, 0x04, 0x02}) // a comment, so that many bytes follow the pixels
	b.Write(make([]byte, 0x400))
	b.Write([]byte{0xFF, 0xD9})
	return b.Bytes()
}

// A table must be computed only when a scan uses it. Otherwise, an image of 64 MiB of tables would take many seconds.
func TestUnusedTablesAreNotComputed(t *testing.T) {
	const tables = 30_000
	all := make([]byte, 0, 19*tables)
	for k := 0; k < tables; {
		var contents []byte
		for range 3000 { // each table has one code, of one bit; its symbol differs from that of the previous table
			contents = append(append(append(contents, 0x13, 1), make([]byte, 15)...), byte(k))
			k++
		}
		all = append(all, segment(0xC4, contents...)...)
	}
	image := with(t, golden(t, "444-37x27.jpg"), 0xDA, all)
	d := &Decoder{}
	if pix, _, _, err := decode(d, image, 1); err != nil || !bytes.Equal(pix, golden(t, "444-37x27.jpg.rgb")) {
		t.Errorf("other pixels, or %v", err)
	}
	used, unused := &d.picture.ac[0], &d.picture.ac[3]
	if !unused.known || unused.built != nil || used.built == nil {
		t.Errorf("got tables computed from %x and %x, want only the first", used.built, unused.built)
	}
}
