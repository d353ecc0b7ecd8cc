//go:build cgo && linux

package shm

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
)

// BenchmarkAllReduce: f32 sums, one after the other, each waited for. us/op-median is of rank 0; bus-GB/s is its bus bandwidth.
func BenchmarkAllReduce(b *testing.B) {
	for _, size := range []int{2, 4} {
		for _, bytes := range []int64{4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20} {
			b.Run(fmt.Sprintf("%d ranks/%d KiB", size, bytes>>10), func(b *testing.B) {
				comms := connect(b, size, Config{})
				var median time.Duration
				b.ResetTimer()
				var wg sync.WaitGroup
				for rank, c := range comms {
					wg.Go(func() {
						dev := reference.New()
						memory, err := dev.Alloc(bytes)
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
