package images

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// BenchmarkFormats decodes the images in each folder of HETERO_BENCH_FORMATS. scripts/compare_formats.py writes them.
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

// cpuTime returns the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	used, err := platform.ProcessTime()
	if err != nil {
		b.Fatal(err)
	}
	return used
}
