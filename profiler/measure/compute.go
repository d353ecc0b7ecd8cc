package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Compute is the measured speed of matrix products.
type Compute struct {
	DType  string `json:"dtype"`
	TFLOPS Figure `json:"tflops"` // a multiply-add counts as 2 operations
	Size   int    `json:"size"`   // rows and columns of the fastest square matrices
}

// Sizes of the square matrices. The smallest product takes milliseconds on the slowest device. The largest one is
// enough work for the fastest device.
const (
	smallestProduct = 64
	largestProduct  = 8192
)

// Products measures products of square matrices (device.Linear) of increasing size. Each size is twice the previous
// one. It returns device.ErrUnsupported if the device does not support this element type.
func Products(ctx context.Context, dev device.Device, dt tensor.DType, budget time.Duration) (Compute, error) {
	best := Compute{DType: dt.String()}
	if dev.Info().Modelled {
		return best,
			fmt.Errorf("matrix products: device %s is simulated and computes no values, so it cannot be measured",
				dev.Info().Name)
	}
	began := time.Now()
	for size := smallestProduct; size <= largestProduct; size *= 2 {
		// Use only half of the remaining budget, because small products only serve to choose the size.
		once, err := product(ctx, dev, dt, size, (budget-time.Since(began))/2)
		if errors.Is(err, device.ErrOutOfMemory) && best.Size > 0 {
			break
		}
		if err != nil {
			return best, fmt.Errorf("matrix products of %v, %d x %d: %w", dt, size, size, err)
		}
		if tflops := Figure(2 * math.Pow(float64(size), 3) / once.Seconds() / 1e12); tflops > best.TFLOPS {
			best.TFLOPS, best.Size = tflops, size
		}
		// Compiling, filling and the first pass take about as long as two further passes.
		if next := 8 * once; time.Since(began)+4*next > budget {
			break
		}
	}
	return best, nil
}

// product returns the time of one product.
func product(ctx context.Context, dev device.Device, dt tensor.DType, size int, budget time.Duration) (time.Duration,
	error) {
	return kernel(ctx, dev, device.Linear{}, budget, device.Spec(dt, size, size), device.Spec(dt, size, size))
}

// kernel returns the time of one pass of an op. The operands have the preferred layouts of the device.
func kernel(ctx context.Context, dev device.Device, op device.Op, budget time.Duration, in ...device.TensorSpec) (
	best time.Duration, err error) {
	var w work
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.open(dev, op, in...); err != nil {
		return 0, err
	}
	return w.sustained(ctx, budget, func(s device.Stream) error { return s.Run(w.program) })
}

// memory owns the allocations of one measurement and stores the first error of an allocation.
type memory struct {
	dev     device.Device
	stream  device.Stream
	buffers []device.Buffer
	err     error
}

func (m *memory) alloc(allocate func(int64) (device.Buffer, error), bytes int64) device.Buffer {
	if m.err != nil {
		return nil
	}
	b, err := allocate(bytes)
	if err != nil {
		m.err = err
		return nil
	}
	m.buffers = append(m.buffers, b)
	return b
}

// region allocates device memory. For 0 bytes it returns an empty region.
func (m *memory) region(bytes int64) device.Region {
	b := m.alloc(m.dev.Alloc, max(bytes, 1))
	if m.err != nil || bytes == 0 {
		return device.Region{}
	}
	return device.Whole(b)
}

// filled allocates device memory and fills it with numbers from [-1, 1). Uninitialised bytes may be NaN or denormal
// numbers, which slow down computing.
func (m *memory) filled(bytes int64, dt tensor.DType) device.Region {
	r := m.region(bytes)
	host := m.alloc(m.dev.AllocHost, max(bytes, 1))
	if m.err != nil || bytes == 0 {
		return r
	}
	fill(host.Host(), dt)
	if s := m.open(); m.err == nil {
		m.err = errors.Join(s.Copy(r, device.Whole(host)), s.Sync())
	}
	return r
}

// fill writes pseudo-random numbers from [-1, 1). They resemble real data, because the power draw, and thereby the
// clock rate, depends on the values.
func fill(b []byte, dt tensor.DType) {
	state := uint32(1)
	for i := 0; i+4 <= len(b); i += 4 {
		state = state*1664525 + 1013904223 // Numerical Recipes, ranqd1
		x := math.Float32bits(float32(int32(state)) / (1 << 31))
		if dt.Size() == 2 { // two values in 4 bytes
			x = x&0xffff0000 | x>>16
		}
		binary.NativeEndian.PutUint32(b[i:], x)
	}
}

func (m *memory) open() device.Stream {
	if m.stream == nil && m.err == nil {
		m.stream, m.err = m.dev.NewStream()
	}
	return m.stream
}

// sustainedFor is the time for which an operation is repeated, if the budget permits it. This time covers many periods
// of a CPU quota (10 to 100 ms), because a rank runs at full speed at the start of each period.
const sustainedFor = 300 * time.Millisecond

// sustained returns the mean time of a pass. After one warm-up pass, it runs at least one pass. It stops after
// sustainedFor or at the end of the budget.
func (m *memory) sustained(ctx context.Context, budget time.Duration, work func(device.Stream) error) (time.Duration,
	error) {
	s := m.open()
	if m.err != nil {
		return 0, m.err
	}
	opened, began := time.Now(), time.Time{}
	for pass := 0; ; pass++ {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if err := errors.Join(work(s), s.Sync()); err != nil {
			return 0, err
		}
		if pass == 0 {
			began = time.Now()
			continue
		}
		took := max(time.Since(began)/time.Duration(pass), 1)
		if time.Since(began) >= sustainedFor || time.Since(opened)+took > budget {
			return took, nil
		}
	}
}

// free frees all allocations.
func (m *memory) free() error {
	var errs []error
	if m.stream != nil {
		errs = append(errs, m.stream.Close())
	}
	for i := len(m.buffers) - 1; i >= 0; i-- {
		errs = append(errs, m.buffers[i].Free())
	}
	return errors.Join(errs...)
}
