package figures

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/profiler/analysis"
	"github.com/hetero-train/hetero-train/profiler/drawing"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// writeRun writes records of a run. A step of rank r takes (r+1)·10 ms, with small variations.
func writeRun(t testing.TB, dir string, ranks int, steps int64) {
	t.Helper()
	logs := filepath.Join(dir, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	for rank := range ranks {
		w, _, err := runtime.Open(filepath.Join(logs, runtime.FileName(rank)), runtime.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for step := int64(1); step <= steps; step++ {
			m := runtime.Record{Iteration: step, Rank: rank, BatchSize: 8,
				Forward: time.Duration(rank+1)*10*time.Millisecond + time.Duration(step%10)*time.Millisecond}
			if ranks > 1 {
				m.Communication, m.Bytes, m.Buckets = time.Duration(rank+1)*2*time.Millisecond+
					time.Duration(step%7)*time.Millisecond, 1<<20, 1
			}
			w.Append(&m)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLatenciesHaveAColourForEachRank(t *testing.T) {
	for _, c := range []struct {
		name  string
		ranks int
	}{{"one rank has no all-reduces", 1}, {"two ranks", 2}} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			writeRun(t, dir, c.ranks, 400)
			s, err := analysis.Summarize(dir, "")
			if err != nil {
				t.Fatal(err)
			}
			var drawn bytes.Buffer
			if err := Latency(&drawn, s); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "latency_histogram.png")
			if err := os.WriteFile(path, drawn.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			seen := colors(t, path)
			for rank := range 2 {
				if got := seen[drawing.Palette[rank]] > 50; got != (rank < c.ranks) {
					t.Errorf("rank %d: %d pixels of its colour", rank, seen[drawing.Palette[rank]])
				}
			}
		})
	}
}

func TestEveryValueIsCountedInABin(t *testing.T) {
	values := []float32{0.001, 0.0015, 0.002, 0.9}
	n := counts(values, 1, 1.0/latencyBins)
	sum := 0.0
	for _, v := range n {
		sum += v
	}
	if sum != 4 || n[0] != 1 || n[latencyBins/2] != 1 || n[latencyBins-1] != 2 {
		t.Errorf("got %v", n)
	}
}

func BenchmarkLatency(b *testing.B) {
	dir := b.TempDir()
	writeRun(b, dir, 4, 10000)
	s, err := analysis.Summarize(dir, "")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := Latency(io.Discard, s); err != nil {
			b.Fatal(err)
		}
	}
}
