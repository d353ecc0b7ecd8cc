package data

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/hetero-train/hetero-train/engine/data/jpeg"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// picture returns the synthetic image of testdata/pillow_resize.py.
func picture(width, height int) []byte {
	pix := make([]byte, 0, 3*width*height)
	for y := range height {
		for x := range width {
			for c := range 3 {
				pix = append(pix, byte(x*37+y*59+c*101+x*y*7))
			}
		}
	}
	return pix
}

func TestResamplingEqualsPillow(t *testing.T) {
	text, err := os.ReadFile("testdata/pillow_resize.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Width, Height int
		Box           [4]int
		Size          [2]int
		CRC32         uint32
		Pixels        []int // pixels, only for small results
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	var r resampler // used for all cases, to detect that old contents of a buffer are used
	for _, c := range cases {
		t.Run(fmt.Sprintf("%dx%d_%v_to_%v", c.Width, c.Height, c.Box, c.Size), func(t *testing.T) {
			side := func(k, full int) axis {
				return cropAxis(c.Box[k], c.Box[k+2]-c.Box[k], full, full, c.Size[k])
			}
			got := make([]byte, 3*c.Size[0]*c.Size[1])
			r.resample(got, picture(c.Width, c.Height), c.Width, side(0, c.Width), side(1, c.Height))
			for i, want := range c.Pixels {
				if int(got[i]) != want {
					t.Fatalf("byte %d is %d, want %d", i, got[i], want)
				}
			}
			if sum := crc32.ChecksumIEEE(got); sum != c.CRC32 {
				t.Fatalf("CRC-32 is %d, want %d", sum, c.CRC32)
			}
		})
	}
}

func TestWindowOfAGridIsThatPartOfTheWholeGrid(t *testing.T) {
	const w, h, gridX, gridY = 50, 31, 20, 17
	src := picture(w, h)
	var r resampler
	whole := make([]byte, 3*gridX*gridY)
	r.resample(whole, src, w, axis{to: w, hi: w, grid: gridX, count: gridX},
		axis{to: h, hi: h, grid: gridY, count: gridY})
	const x0, y0, nx, ny = 3, 5, 9, 7
	part := make([]byte, 3*nx*ny)
	r.resample(part, src, w, axis{to: w, hi: w, grid: gridX, first: x0, count: nx},
		axis{to: h, hi: h, grid: gridY, first: y0, count: ny})
	for y := range ny {
		got, want := part[y*3*nx:][:3*nx], whole[3*((y0+y)*gridX+x0):][:3*nx]
		if !bytes.Equal(got, want) {
			t.Fatalf("row %d: got %v, want %v", y, got, want)
		}
	}
}

func TestResamplingAConstantImageKeepsIt(t *testing.T) {
	var r resampler
	for _, v := range []byte{0, 1, 127, 254, 255} {
		src := bytes.Repeat([]byte{v}, 3*37*29)
		for _, out := range []int{1, 2, 5, 28, 36, 37, 64, 200} {
			dst := make([]byte, 3*out*out)
			r.resample(dst, src, 37, axis{to: 37, hi: 37, grid: out, count: out},
				axis{to: 29, hi: 29, grid: out, count: out})
			for i, got := range dst {
				if got != v {
					t.Fatalf("value %d to %d pixels: byte %d is %d", v, out, i, got)
				}
			}
		}
	}
}

func BenchmarkResample(b *testing.B) {
	for _, c := range []struct{ w, h, out int }{{500, 375, 224}, {300, 300, 224}, {250, 188, 224}} {
		b.Run(fmt.Sprintf("%dx%d_to_%d", c.w, c.h, c.out), func(b *testing.B) {
			src, dst := picture(c.w, c.h), make([]byte, 3*c.out*c.out)
			var r resampler
			for b.Loop() {
				r.resample(dst, src, c.w, cropAxis(0, c.w, c.w, c.w, c.out), cropAxis(0, c.h, c.h, c.h, c.out))
			}
		})
	}
}

// The native loops process four rows and sixteen bytes at a time. The test uses sizes near these numbers, and crops at
// every edge.
func TestNativeResamplingEqualsGo(t *testing.T) {
	if !jpeg.InUse().Native {
		needtest.Missing(t, "jpeg", jpeg.InUse().Reason)
	}
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(1, 60).Draw(t, "width"), rapid.IntRange(1, 40).Draw(t, "height")
		side := func(name string, full int) axis {
			start := rapid.IntRange(0, full-1).Draw(t, name+" start")
			length := rapid.IntRange(1, full-start).Draw(t, name+" length")
			return cropAxis(start, length, full, full, rapid.IntRange(1, 40).Draw(t, name+" size"))
		}
		x, y := side("x", w), side("y", h)
		src := rapid.SliceOfN(rapid.Byte(), 3*w*h, 3*w*h).Draw(t, "pixels")
		var native, plain resampler
		got, want := make([]byte, 3*x.count*y.count), make([]byte, 3*x.count*y.count)
		native.resample(got, src, w, x, y)
		plain.x.setup(x)
		plain.y.setup(y)
		plain.rows = make([]byte, 3*h*x.count)
		plain.plain(want, src, w, x, y)
		if !bytes.Equal(got, want) {
			t.Fatalf("%d x %d, %+v, %+v: got %v, want %v", w, h, x, y, got, want)
		}
	})
}
