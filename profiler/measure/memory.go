package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Bandwidth is that of a device's own memory, far beyond its caches, in GB/s. 0 is what the device cannot measure.
type Bandwidth struct {
	Read  float64 `json:"read_gbytes_per_second"`
	Write float64 `json:"write_gbytes_per_second"`
	Copy  float64 `json:"copy_gbytes_per_second"` // read and written
}

// Memory measures the bandwidth of the device's memory with its own measurement (device.PeakMeasurer) where it has one, else by copies
// within it. Copies come first; reading and writing are left out where preparing so much memory has used the time up.
func Memory(ctx context.Context, dev device.Device, budget time.Duration) (Bandwidth, error) {
	var b Bandwidth
	m, ok := dev.(device.PeakMeasurer)
	if !ok {
		var err error
		b.Copy, err = copyWithin(ctx, dev, budget)
		return b, err
	}
	began, last := time.Now(), time.Duration(0)
	for _, p := range []struct {
		what device.Peak
		into *float64
	}{{device.PeakCopy, &b.Copy}, {device.PeakRead, &b.Read}, {device.PeakWrite, &b.Write}} {
		if err := ctx.Err(); err != nil {
			return b, err
		}
		if last > 0 && time.Since(began)+last > budget {
			break
		}
		start := time.Now()
		v, err := m.MeasurePeak(p.what, budget/3)
		last = time.Since(start)
		if errors.Is(err, device.ErrUnsupported) {
			continue
		}
		if err != nil {
			return b, fmt.Errorf("memory bandwidth: %w", err)
		}
		*p.into = v / 1e9
	}
	return b, nil
}

// copyBytes is the size of copies: beyond most caches, and an H100 moves it in some 40 us.
const copyBytes = 64 << 20

func copyWithin(ctx context.Context, dev device.Device, budget time.Duration) (_ float64, err error) {
	m := memory{dev: dev}
	defer func() { err = errors.Join(err, m.free()) }()
	src, dst := m.region(copyBytes), m.region(copyBytes)
	took, err := m.fastest(ctx, budget, func(s device.Stream) error { return s.Copy(dst, src) })
	if err != nil {
		return 0, fmt.Errorf("memory bandwidth: %w", err)
	}
	return 2 * copyBytes / took.Seconds() / 1e9, nil
}

// Copies is what moves between host and device, over PCIe for a GPU; for a CPU it is a copy in memory.
type Copies struct {
	ToDevice       float64 `json:"host_to_device_gbytes_per_second"`
	ToHost         float64 `json:"device_to_host_gbytes_per_second"`
	LatencySeconds float64 `json:"latency_seconds"` // of a copy of 4 KiB to the device
}

// HostDevice measures copies between page-locked host memory and the device.
func HostDevice(ctx context.Context, dev device.Device, budget time.Duration) (c Copies, err error) {
	m := memory{dev: dev}
	defer func() { err = errors.Join(err, m.free()) }()
	host, there := m.alloc(m.dev.AllocHost, copyBytes), m.region(copyBytes)
	if m.err != nil {
		return c, fmt.Errorf("host-device copies: %w", m.err)
	}
	here := device.Whole(host)
	clear(here.Host())
	small := func(r device.Region) device.Region { r.Bytes = 4 << 10; return r }
	var took [3]time.Duration
	for i, pair := range [][2]device.Region{{there, here}, {here, there}, {small(there), small(here)}} {
		took[i], err = m.fastest(ctx, budget/3, func(s device.Stream) error { return s.Copy(pair[0], pair[1]) })
		if err != nil {
			return c, fmt.Errorf("host-device copies: %w", err)
		}
	}
	return Copies{copyBytes / took[0].Seconds() / 1e9, copyBytes / took[1].Seconds() / 1e9, took[2].Seconds()}, nil
}

// triadElements is the length of each of the three arrays: together 192 MiB.
const triadElements = 8 << 20

// Triad measures the host's memory: a[i] = b[i] + s*c[i] over f64 in plain Go by so many goroutines (McCalpin, STREAM), in GB/s, 24 bytes
// an element; what the hardware reads before it writes a is not counted.
func Triad(ctx context.Context, threads int, budget time.Duration) (float64, error) {
	a, b, c := make([]float64, triadElements), make([]float64, triadElements), make([]float64, triadElements)
	run := func(each func(lo, hi int)) {
		var wait sync.WaitGroup
		for t := range threads {
			wait.Go(func() { each(t*triadElements/threads, (t+1)*triadElements/threads) })
		}
		wait.Wait()
	}
	run(func(lo, hi int) { // the pages come to the goroutine's CPU
		for i := lo; i < hi; i++ {
			a[i], b[i], c[i] = 0, 1, 2
		}
	})
	best := time.Duration(0)
	for began := time.Now(); best == 0 || time.Since(began)+best < budget; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		start := time.Now()
		run(func(lo, hi int) { triad(a[lo:hi], b[lo:hi], c[lo:hi], 3) })
		if took := max(time.Since(start), 1); best == 0 || took < best {
			best = took
		}
	}
	if a[triadElements/3] != 7 {
		return 0, fmt.Errorf("memory triad: got %v, want 7", a[triadElements/3])
	}
	return 24 * triadElements / best.Seconds() / 1e9, nil
}

func triad(a, b, c []float64, s float64) {
	b, c = b[:len(a)], c[:len(a)]
	for i := range a {
		a[i] = b[i] + s*c[i]
	}
}
