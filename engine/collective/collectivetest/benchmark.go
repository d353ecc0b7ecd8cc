package collectivetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// Benchmark times all-reduces (f32, sum) of 1 KiB to 256 MiB among ranks of this process. Each all-reduce starts after
// the end of the previous one. The metric us/op-median is the median time on rank 0 in microseconds; bus-GB/s is the
// bus bandwidth that follows from this time. Benchmark closes the communicators that open returns.
func Benchmark(b *testing.B, sizes []int, open func(b *testing.B, size int) []collective.Communicator) {
	for _, size := range sizes {
		for _, bytes := range []int64{1 << 10, 4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20} {
			b.Run(fmt.Sprintf("%d ranks/%d KiB", size, bytes>>10), func(b *testing.B) {
				comms := open(b, size)
				b.ResetTimer()
				median := measure(b, comms, bytes)
				b.StopTimer()
				b.ReportMetric(float64(median.Nanoseconds())/1e3, "us/op-median")
				b.ReportMetric(collective.BusBytesPerSecond(size, bytes, median)/1e9, "bus-GB/s")
				for _, c := range comms {
					if err := c.Close(); err != nil {
						b.Error(err)
					}
				}
			})
		}
	}
}

// BenchmarkSmall times all-reduces (f32, sum) among ranks of this process. The buffer has 1,800 bytes, about the size
// of a rank's report. The metric cpu-us/rank is the CPU time of one operation, including the threads of the transport,
// divided by the number of ranks. BenchmarkSmall closes the communicators that open returns.
func BenchmarkSmall(b *testing.B, sizes []int, open func(b *testing.B, size int) []collective.Communicator) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%d ranks", size), func(b *testing.B) {
			comms := open(b, size)
			b.ResetTimer()
			before := cpuSeconds(b)
			median := measure(b, comms, 1800)
			took := (cpuSeconds(b) - before) / float64(max(b.N, 1)+collective.WarmUpRounds)
			b.StopTimer()
			b.ReportMetric(float64(median.Nanoseconds())/1e3, "us/op-median")
			b.ReportMetric(took*1e6/float64(size), "cpu-us/rank")
			for _, c := range comms {
				if err := c.Close(); err != nil {
					b.Error(err)
				}
			}
		})
	}
}

// cpuSeconds returns the CPU time of this process.
func cpuSeconds(b *testing.B) float64 {
	b.Helper()
	took, err := platform.ProcessTime()
	if err != nil {
		b.Fatal(err)
	}
	return took.Seconds()
}

// measure runs all-reduces of the given number of bytes, and returns their median time on rank 0.
func measure(b *testing.B, comms []collective.Communicator, bytes int64) (median time.Duration) {
	var wg sync.WaitGroup
	for rank, c := range comms {
		wg.Go(func() {
			memory, err := reference.New().Alloc(bytes)
			if err != nil {
				b.Error(err)
				return
			}
			clear(memory.Host())
			took, err := collective.MeasureAllReduce(b.Context(), c, device.Whole(memory), max(b.N, 1))
			if err != nil {
				b.Error(err)
				return
			}
			if rank == 0 {
				slices.Sort(took)
				median = took[len(took)/2]
			}
		})
	}
	wg.Wait()
	return median
}
