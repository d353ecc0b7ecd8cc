package images

import (
	"bytes"
	"compress/zlib"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	fast "github.com/klauspost/compress/zlib"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// BenchmarkFormats decodes the images in each folder of HETERO_BENCH_FORMATS, which scripts/compare_formats.py writes.
func BenchmarkFormats(b *testing.B) {
	folders, err := filepath.Glob(filepath.Join(os.Getenv("HETERO_BENCH_FORMATS"), "*"))
	if err != nil {
		b.Fatal(err)
	}
	if os.Getenv("HETERO_BENCH_FORMATS") == "" {
		needtest.Missing(b, "data", "HETERO_BENCH_FORMATS is not set")
	}
	for _, folder := range folders {
		b.Run(filepath.Base(folder), func(b *testing.B) {
			names, err := filepath.Glob(filepath.Join(folder, "*"))
			if err != nil || len(names) == 0 {
				b.Fatalf("%d files, %v", len(names), err)
			}
			var files [][]byte
			for _, name := range names {
				contents, err := os.ReadFile(name)
				if err != nil {
					b.Fatal(err)
				}
				files = append(files, contents)
			}
			d, err := NewDecoder(DecodeOptions{})
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			start, n := cpuTime(b), 0
			for b.Loop() {
				for _, contents := range files {
					var img data.Image
					if err := d.Decode(contents, nil, &img); err != nil {
						b.Fatal(err)
					}
					n++
				}
			}
			b.ReportMetric(float64(n)/(cpuTime(b)-start).Seconds(), "units/cpu-s")
		})
	}
}

// BenchmarkUnpack decompresses the pixels of the PNG images in HETERO_BENCH_FORMATS. It compares this package with two
// libraries.
func BenchmarkUnpack(b *testing.B) {
	if os.Getenv("HETERO_BENCH_FORMATS") == "" {
		needtest.Missing(b, "data", "HETERO_BENCH_FORMATS is not set")
	}
	names, err := filepath.Glob(filepath.Join(os.Getenv("HETERO_BENCH_FORMATS"), "png", "*"))
	if err != nil || len(names) == 0 {
		b.Fatalf("%d files, %v", len(names), err)
	}
	var streams [][]byte
	size := 0 // number of bytes of an image after decompression
	for _, name := range names {
		contents, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		p, _, ok := readPlainPNG(contents, nil)
		if !ok {
			b.Fatalf("%s: of another kind", name)
		}
		streams = append(streams, p.packed)
		size = p.height * (1 + p.width*p.channels)
	}
	var own inflater
	read := func(open func(io.Reader) (io.ReadCloser, error)) func(out, packed []byte) bool {
		var in bytes.Reader
		var stream io.ReadCloser
		return func(out, packed []byte) (ok bool) {
			in.Reset(packed)
			var err error
			if stream == nil {
				stream, err = open(&in)
			} else {
				err = stream.(zlib.Resetter).Reset(&in, nil)
			}
			if err == nil {
				_, err = io.ReadFull(stream, out)
			}
			return err == nil
		}
	}
	out := make([]byte, size)
	for name, unpack := range map[string]func(out, packed []byte) bool{"own": own.unpack,
		"klauspost": read(fast.NewReader), "zlib": read(zlib.NewReader)} {
		b.Run(name, func(b *testing.B) {
			start, n := cpuTime(b), 0
			for b.Loop() {
				for _, packed := range streams {
					if !unpack(out, packed) {
						b.Fatal("not decompressed")
					}
					n++
				}
			}
			b.ReportMetric(float64(n)/(cpuTime(b)-start).Seconds(), "units/cpu-s")
		})
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	used, err := platform.ProcessTime()
	if err != nil {
		b.Fatal(err)
	}
	return used
}
