package images

import (
	"bytes"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	reference "golang.org/x/image/tiff/lzw"
)

// pack encodes contents as the LZW of TIFF. It clears the table when the table has the given number of codes, at most
// 4,094.
func pack(contents []byte, most int) []byte {
	var out []byte
	var bits uint64
	held, width := 0, 9
	put := func(code int) {
		bits, held = bits<<width|uint64(code), held+width
		for ; held >= 8; held -= 8 {
			out = append(out, byte(bits>>(held-8)))
		}
	}
	codes := map[string]int{}
	code := func(text []byte) int {
		if len(text) == 1 {
			return int(text[0])
		}
		return codes[string(text)]
	}
	put(lzwClear)
	next, start := lzwFirst, 0
	for end := range contents {
		text := contents[start : end+1]
		if _, known := codes[string(text)]; known || len(text) == 1 {
			continue
		}
		put(code(text[:len(text)-1]))
		start = end
		if codes[string(text)] = next; next+1 >= 1<<width && width < lzwWidth { // decoders add a code one step later
			width++
		}
		if next++; next >= most {
			put(lzwClear)
			clear(codes)
			next, width = lzwFirst, 9
		}
	}
	if start < len(contents) {
		put(code(contents[start:]))
		if next+1 >= 1<<width && width < lzwWidth {
			width++
		}
	}
	put(lzwEnd)
	if held > 0 {
		out = append(out, byte(bits<<(8-held)))
	}
	return out
}

// The texts use all widths of codes, and clear codes in the middle. They also have repetitions that begin in the string
// of the last code.
func TestLZWDecodesAsThePackageDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var table lzw
	wide := 0
	for range 80 {
		contents := make([]byte, random.IntN(40_000))
		kinds := 1 + random.IntN(256)
		for i := range contents {
			if contents[i] = byte(random.IntN(kinds)); i > 300 && random.IntN(4) > 0 {
				contents[i] = contents[i-1-random.IntN(300)]
			}
		}
		most := 300 + random.IntN(4094-300)
		if random.IntN(3) == 0 {
			most = 4094
		}
		packed := pack(contents, most)
		if len(contents) > 10_000 && most > 2100 {
			wide++
		}
		want, err := io.ReadAll(reference.NewReader(bytes.NewReader(packed), reference.MSB, 8))
		if err != nil || !bytes.Equal(want, contents) {
			t.Fatalf("%d bytes, %d codes: the package returns other bytes, %v: the encoder of the test is wrong",
				len(contents), most, err)
		}
		got := make([]byte, len(contents))
		if !table.decode(got, packed) || !bytes.Equal(got, contents) {
			t.Errorf("%d bytes, %d codes: other bytes than those of the package", len(contents), most)
		}
		damaged := slices.Clone(packed)
		damaged[random.IntN(len(damaged))] ^= 1 << random.IntN(8)
		if table.decode(got, damaged) {
			want, err = io.ReadAll(reference.NewReader(bytes.NewReader(damaged), reference.MSB, 8))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d damaged bytes: accepted, but the package differs: %v", len(contents), err)
			}
		}
	}
	if wide < 8 {
		t.Errorf("%d streams have codes of 12 bits, want at least 8", wide)
	}
}
