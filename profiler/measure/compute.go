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

// Compute is the speed of matrix products.
type Compute struct {
	DType  string `json:"dtype"`
	TFLOPS Figure `json:"tflops"` // a multiply-add counts 2
	Size   int    `json:"size"`   // of the fastest square matrices
}

// Sizes of the square matrices: the first takes milliseconds on the slowest device, the last keeps the fastest busy.
const (
	smallestProduct = 64
	largestProduct  = 8192
)

// Products measures matrix products (device.Linear) of square matrices whose size doubles. It returns
// device.ErrUnsupported if the device has no product of this type.
func Products(ctx context.Context, dev device.Device, dt tensor.DType, budget time.Duration) (Compute, error) {
	best := Compute{DType: dt.String()}
	if dev.Info().Modelled {
		return best, fmt.Errorf("matrix products: device %s does not compute, so it cannot be measured", dev.Info().Name)
	}
	began := time.Now()
	for size := smallestProduct; size <= largestProduct; size *= 2 {
		// Half of the remaining budget: small products only determine the size of larger ones.
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
		// Compiling, filling and the first pass take about as long as two more passes.
		if next := 8 * once; time.Since(began)+4*next > budget {
			break
		}
	}
	return best, nil
}

// product returns the time of a pass.
func product(ctx context.Context, dev device.Device, dt tensor.DType, size int, budget time.Duration) (time.Duration, error) {
	return kernel(ctx, dev, device.Linear{}, budget, device.Spec(dt, size, size), device.Spec(dt, size, size))
}

// kernel returns the time of a pass of an op with operands in the device's preferred layouts.
func kernel(ctx context.Context, dev device.Device, op device.Op, budget time.Duration, in ...device.TensorSpec) (best time.Duration, err error) {
	m := memory{dev: dev}
	defer func() { err = errors.Join(err, m.free()) }()
	out, err := op.Infer(in)
	if err != nil {
		return 0, err
	}
	for _, specs := range [][]device.TensorSpec{in, out} {
		for i := range specs {
			specs[i].Layout = device.Any
		}
	}
	k, err := dev.Compile(op, in, out)
	if err != nil {
		return 0, err
	}
	defer k.Close()
	launch := device.Launch{Name: "measure", Kernel: k}
	for _, s := range k.In() {
		launch.In = append(launch.In, m.filled(s.Size(), s.DType))
	}
	for _, s := range k.Out() {
		launch.Out = append(launch.Out, m.region(s.Size()))
	}
	launch.Workspace = m.region(k.Workspace())
	if m.err != nil {
		return 0, m.err
	}
	program, err := dev.NewProgram([]device.Step{{Launch: &launch}})
	if err != nil {
		return 0, err
	}
	defer program.Close()
	return m.sustained(ctx, budget, func(s device.Stream) error { return s.Run(program) })
}

// memory owns the allocations of one measurement, and keeps the first error.
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

// region allocates device memory; none for 0 bytes.
func (m *memory) region(bytes int64) device.Region {
	b := m.alloc(m.dev.Alloc, max(bytes, 1))
	if m.err != nil || bytes == 0 {
		return device.Region{}
	}
	return device.Whole(b)
}

// filled allocates device memory full of small numbers: undefined bytes may be NaN or denormal numbers, which are
// slower.
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

// fill writes pseudo-random numbers of [-1, 1), like real data: power draw, and so the clock, depends on the values.
func fill(b []byte, dt tensor.DType) {
	state := uint32(1)
	for i := 0; i+4 <= len(b); i += 4 {
		state = state*1664525 + 1013904223 // Numerical Recipes, ranqd1
		x := math.Float32bits(float32(int32(state)) / (1 << 31))
		if dt.Size() == 2 { // two values
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

// sustainedFor is how long work is repeated if the budget allows it. It covers many periods of a CPU quota (10 to 100
// ms): at the start of each period a rank is as fast as without a quota.
const sustainedFor = 300 * time.Millisecond

// sustained returns the mean time of a pass. After one warm-up pass it runs at least one, until sustainedFor or the
// budget has passed.
func (m *memory) sustained(ctx context.Context, budget time.Duration, work func(device.Stream) error) (time.Duration, error) {
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
