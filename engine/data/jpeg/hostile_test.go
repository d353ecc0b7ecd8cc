package jpeg

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// segment returns a marker with its length and contents.
func segment(marker byte, contents ...byte) []byte {
	n := len(contents) + 2
	return append([]byte{0xFF, marker, byte(n >> 8), byte(n)}, contents...)
}

// progressive returns a grey image of the given size. Each scan after the first one states in a few bytes that no pixel
// changes. A decoder must nevertheless process all pixels for each scan.
func progressive(width, height, scans int) []byte {
	var b bytes.Buffer
	b.Write([]byte{0xFF, 0xD8})
	b.Write(segment(0xDB, append([]byte{0}, bytes.Repeat([]byte{1}, 64)...)...))
	b.Write(segment(0xC2, 8, byte(height>>8), byte(height), byte(width>>8), byte(width), 1, 1, 0x11, 0))
	code := func(class, symbol byte) []byte { // a Huffman table with a single code of one bit
		return segment(0xC4, append(append([]byte{class, 1}, make([]byte, 15)...), symbol)...)
	}
	b.Write(code(0x00, 0))    // DC code: no difference
	b.Write(code(0x10, 0xE0)) // AC code: no block from here on changes, for 2^14 blocks or more
	blocks := ((width + 7) / 8) * ((height + 7) / 8)
	b.Write(segment(0xDA, 1, 1, 0x00, 0, 0, 0))
	b.Write(make([]byte, (blocks+7)/8)) // one bit per block
	runs := blocks/(1<<14) + 1
	for range scans - 1 {
		b.Write(segment(0xDA, 1, 1, 0x00, 1, 63, 0))
		b.Write(make([]byte, (15*runs+7)/8)) // one code and 14 bits per run
	}
	b.Write([]byte{0xFF, 0xD9})
	return b.Bytes()
}

// The decoding time is proportional to the number of scans times the number of pixels. Images above a limit must be
// refused (row S9 of docs/reliability.md).
func TestManyScansOfManyPixelsAreRefused(t *testing.T) {
	for name, d := range decoders(t) {
		for _, c := range []struct {
			width, height, scans int
			refused              bool
		}{{8192, 8192, 17, true}, {8192, 8192, 10, false}, {65535, 65535, 1, true}, {1024, 1024, 400, false},
			{2000, 1500, 400, true}} {
			h, err := d.Header(progressive(c.width, c.height, c.scans))
			if refused := err != nil; refused != c.refused || refused &&
				!strings.Contains(err.Error(), "pixels, want at most") {
				t.Errorf("%s: %d scans of %d x %d: got %+v, %v; want refused: %v", name, c.scans, c.width, c.height, h,
					err, c.refused)
			}
		}
		small := progressive(64, 48, 20)
		h, err := d.Header(small)
		if err != nil {
			t.Fatal(err)
		}
		if pix, _, _, err := d.Decode(small, h, 1, nil); err != nil || len(pix) != 3*64*48 {
			// The attacks must be valid images. Otherwise, the checks above would prove nothing.
			t.Errorf("%s: the attack is no image: %v", name, err)
		}
	}
}

// The test logs the decoding times of docs/reliability.md. No image may take more CPU time than most. Complete images
// must be decoded. Images that end within their header must be refused.
func TestTheSlowestImagesThatAreDecoded(t *testing.T) {
	needtest.Hostile.Need(t, "takes seconds and half a GiB")
	const headerOnly = 700        // bytes before the first scan
	const most = 10 * time.Second // docs/reliability.md states 2.2 s, but other processors may be slower
	for name, d := range decoders(t) {
		for _, c := range []struct{ width, height, scans int }{{8192, 8192, 16}, {8192, 8192, 1}, {4096, 4096, 64},
			{1448, 1448, 500}, {500, 375, 500}} {
			contents := progressive(c.width, c.height, c.scans)
			for _, cut := range []int{len(contents), len(contents) / 2, headerOnly} {
				text := fmt.Sprintf("%s: %d scans of %d x %d, %d of %d bytes", name, c.scans, c.width, c.height,
					min(cut, len(contents)), len(contents))
				begun := cpuTime(t)
				h, err := d.Header(contents[:min(cut, len(contents))])
				if err == nil {
					_, _, _, err = d.Decode(contents[:min(cut, len(contents))], h, 1, nil)
				}
				took := cpuTime(t) - begun
				t.Logf("%s: %d ms, %v", text, took.Milliseconds(), err)
				if took > most {
					t.Errorf("%s: took %v of CPU time, want at most %v", text, took, most)
				}
				if complete := cut == len(contents); complete && err != nil || cut == headerOnly && err == nil {
					t.Errorf("%s: got %v", text, err)
				}
			}
		}
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	spent, err := platform.ProcessTime()
	if err != nil {
		t.Fatal(err)
	}
	return spent
}
