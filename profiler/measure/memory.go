package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Bandwidth is the bandwidth of a device's memory in GB/s, for data much larger than the caches.
type Bandwidth struct {
	Read  Figure `json:"read_gbytes_per_second"`
	Write Figure `json:"write_gbytes_per_second"`
	Copy  Figure `json:"copy_gbytes_per_second"` // counts both the bytes read and the bytes written
}

// leastPeak is the smallest budget with which the device itself measures. The device first prepares hundreds of MB,
// which takes time.
const leastPeak = 2 * time.Second

// Memory measures the bandwidth of the device's memory. If the device can measure it (device.PeakMeasurer) and the
// budget is at least 2 s, the device does so. In this case, Read and Write are not measured if the preparation uses up
// the budget.
//
// Otherwise, Copy is computed from the time to add two tensors of 32 MiB. On a slow device other than a CPU, the
// tensors are smaller. This method is less accurate, and its result is too high if a cache can hold the tensors.
func Memory(ctx context.Context, dev device.Device, budget time.Duration) (Bandwidth, error) {
	var b Bandwidth
	m, ok := dev.(device.PeakMeasurer)
	if !ok || budget < leastPeak {
		least := int64(leastMoved)
		if dev.Info().Threads > 0 { // a CPU: the tensors must exceed the caches, even for a rank with a small quota
			least = mostAdded
		}
		bytes, took, err := grow(least, mostAdded, budget,
			func(bytes int64, budget time.Duration) (time.Duration, error) {
				spec := device.Spec(tensor.F32, int(bytes/4))
				return kernel(ctx, dev, device.Binary{Func: device.Add}, budget, spec, spec)
			})
		if err != nil {
			return b, fmt.Errorf("memory bandwidth: %w", err)
		}
		b.Copy = Figure(3 * float64(bytes) / took.Seconds() / 1e9)
		return b, nil
	}
	began, last := time.Now(), time.Duration(0)
	for _, p := range []struct {
		what device.Peak
		into *Figure
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
		*p.into = Figure(v / 1e9)
	}
	return b, nil
}

const (
	// Sizes in bytes. leastMoved is the first size on a slow device. mostAdded is the largest tensor of an addition.
	// mostCopied is the largest copy, which takes an H100 about a millisecond over PCIe.
	leastMoved = 1 << 20
	mostAdded  = 32 << 20
	mostCopied = 64 << 20
)

// grow calls work with increasing sizes, as long as the next size is expected to fit into half of the budget. Each size
// is four times the previous one. grow uses the remaining budget for the last size.
func grow(least, most int64, budget time.Duration, work func(bytes int64, budget time.Duration) (time.Duration,
	error)) (bytes int64, took time.Duration, err error) {
	began := time.Now()
	for bytes = least; ; bytes *= 4 {
		start := time.Now()
		if took, err = work(bytes, 0); err != nil {
			return bytes, 0, err
		}
		if next := 4 * time.Since(start); 4*bytes > most || time.Since(began)+next > budget/2 {
			break
		}
	}
	again, err := work(bytes, budget-time.Since(began))
	return bytes, again, err
}

// Copies is the speed of copies between host and device: over PCIe for a GPU, within memory for a CPU.
type Copies struct {
	ToDevice       Figure `json:"host_to_device_gbytes_per_second"`
	ToHost         Figure `json:"device_to_host_gbytes_per_second"`
	LatencySeconds Figure `json:"latency_seconds"` // time of a copy of 4 KiB to the device
}

// HostDevice measures copies between page-locked host memory and the device.
func HostDevice(ctx context.Context, dev device.Device, budget time.Duration) (c Copies, err error) {
	rate := func(there bool) (Figure, error) {
		bytes, took, err := grow(leastMoved, mostCopied, budget/3,
			func(bytes int64, budget time.Duration) (time.Duration, error) {
				return copied(ctx, dev, bytes, there, budget)
			})
		return Figure(float64(bytes) / took.Seconds() / 1e9), err
	}
	if c.ToDevice, err = rate(true); err == nil {
		c.ToHost, err = rate(false)
	}
	if err != nil {
		return Copies{}, fmt.Errorf("host-device copies: %w", err)
	}
	took, err := copied(ctx, dev, 4<<10, true, budget/3)
	if err != nil {
		return Copies{}, fmt.Errorf("host-device copies: %w", err)
	}
	c.LatencySeconds = Figure(took.Seconds())
	return c, nil
}

// copied returns the time of a copy from the host to the device, or from the device to the host if toDevice is false.
func copied(ctx context.Context, dev device.Device, bytes int64, toDevice bool, budget time.Duration) (_ time.Duration,
	err error) {
	m := memory{dev: dev}
	defer func() { err = errors.Join(err, m.free()) }()
	host, far := m.alloc(dev.AllocHost, bytes), m.region(bytes)
	if m.err != nil {
		return 0, m.err
	}
	dst, src := far, device.Whole(host)
	clear(host.Host())
	if !toDevice {
		dst, src = src, dst
	}
	return m.sustained(ctx, budget, func(s device.Stream) error { return s.Copy(dst, src) })
}

// triadElements is the length of each of the three arrays, which together have 192 MiB.
const triadElements = 8 << 20

// Triad measures the bandwidth of the host's memory in GB/s with a[i] = b[i] + s*c[i] (McCalpin, STREAM). It uses f64,
// plain Go, and the given number of goroutines. It counts 24 bytes per element. It does not count the bytes of a that
// the hardware reads before each write.
func Triad(ctx context.Context, threads int, budget time.Duration) (float64, error) {
	a, b, c := make([]float64, triadElements), make([]float64, triadElements), make([]float64, triadElements)
	run := func(each func(lo, hi int)) {
		var wait sync.WaitGroup
		for t := range threads {
			wait.Go(func() { each(t*triadElements/threads, (t+1)*triadElements/threads) })
		}
		wait.Wait()
	}
	run(func(lo, hi int) { // the first write allocates the pages near the CPU of the goroutine
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
		return 0, fmt.Errorf("memory triad: wrong result: got %v, want 7", a[triadElements/3])
	}
	return 24 * triadElements / best.Seconds() / 1e9, nil
}

func triad(a, b, c []float64, s float64) {
	b, c = b[:len(a)], c[:len(a)]
	for i := range a {
		a[i] = b[i] + s*c[i]
	}
}
