package huggingface

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/table"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// BenchmarkTables reads the data sets in the folder HETERO_BENCH_TABLES, which scripts/compare_formats.py writes.
func BenchmarkTables(b *testing.B) {
	dir := os.Getenv("HETERO_BENCH_TABLES")
	if dir == "" {
		needtest.Missing(b, "data", "HETERO_BENCH_TABLES is not set")
	}
	ctx := context.Background()
	measure := func(name string, read func() (rows int, err error)) {
		b.Run(name, func(b *testing.B) {
			start, n := cpuTime(b), 0
			for b.Loop() {
				rows, err := read()
				if err != nil {
					b.Fatal(err)
				}
				n += rows
			}
			b.ReportMetric(float64(n)/(cpuTime(b)-start).Seconds(), "units/cpu-s")
		})
	}
	scan := func(path string, columns ...table.Column) func() (int, error) {
		return func() (rows int, err error) {
			f, err := table.Open(filepath.Join(dir, path))
			if err != nil {
				return 0, err
			}
			defer f.Close()
			err = f.Scan(ctx, columns, func([]table.Value) error {
				rows++
				return nil
			})
			return rows, err
		}
	}
	measure("images Parquet scan", scan("images.parquet", table.Column{Path: "image.bytes"}, table.Column{Path: "label"}))
	measure("texts Parquet scan", scan("texts.parquet", table.Column{Path: "text"}, table.Column{Path: "label"}))

	s, r := opened(b, options(b, filepath.Join(dir, "images")))
	order := rand.New(rand.NewPCG(1, 1)).Perm(s.Train.Len())[:500]
	measure("images Arrow random", func() (int, error) {
		for _, i := range order {
			if _, err := r.(data.Encoded).Contents(i); err != nil {
				return 0, err
			}
		}
		return len(order), nil
	})
}

// cpuTime returns the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	used, err := platform.ProcessTime()
	if err != nil {
		b.Fatal(err)
	}
	return used
}
