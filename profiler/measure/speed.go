package measure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/profiler/stats"
)

// Speed measures the two values of a compute score, matrix products and memory bandwidth, in short slices. The ranks
// of one machine take turns with their slices. They therefore do not disturb each other, and other work on the
// machine affects all of them equally.
type Speed struct {
	clock            clock
	dtype            tensor.DType
	size             int // rows and columns of the square matrices
	moved            int64
	products, memory work
}

// SpeedOptions configures the measurement of a rank.
type SpeedOptions struct {
	DType tensor.DType // element type of the products, which is that of the training

	// CPUs is the CPU time per second that the rank may use, for a device that computes on the CPUs of the host.
	// Times are then CPU time / CPUs. They do not depend on the periods of a quota or on other work on the machine.
	// For other devices, CPUs is 0.
	CPUs float64

	// TensorBytes is the size of each of the three tensors of an addition. 0 means 32 MiB.
	TensorBytes int64
}

const (
	// The matrices are large enough if a pass takes enoughWork of CPU or GPU time. A pass then fits into a slice of 100
	// ms even with a tenth of a CPU. A larger value gives more accurate results on fast devices, but longer slices on
	// slow ones.
	enoughWork = 4 * time.Millisecond
	// leastTensor is the size of the smallest tensor of an addition in bytes. It is larger than most caches.
	leastTensor = 4 << 20
)

// work is an operation that is measured.
type work struct {
	memory
	program device.Program
	kernel  device.Kernel
	slices  []float64 // time of a pass in s, one value per slice
}

// OpenSpeed prepares both operations and runs each of them once. Under a quota, the preparation may be slow. Ranks
// therefore call OpenSpeed before they take turns, so that it does not disturb a measurement.
func OpenSpeed(ctx context.Context, dev device.Device, o SpeedOptions) (_ *Speed, err error) {
	if dev.Info().Modelled {
		return nil, fmt.Errorf("compute score: device %s is simulated and computes no values, so it cannot be measured",
			dev.Info().Name)
	}
	s := &Speed{clock: newClock(o.CPUs), dtype: o.DType, size: smallestProduct, moved: o.TensorBytes}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for ; ; s.size *= 2 {
		spec := device.Spec(o.DType, s.size, s.size)
		if err := s.products.open(dev, device.Linear{}, spec, spec); err != nil {
			return s, fmt.Errorf("matrix products of %v, %d x %d: %w", o.DType, s.size, s.size, err)
		}
		if err := s.products.pass(ctx); err != nil { // the first pass loads code
			return s, err
		}
		busy := s.clock.busy()
		if err := s.products.pass(ctx); err != nil {
			return s, err
		}
		if 2*s.size > largestProduct || busy() >= enoughWork {
			break
		}
		if err := s.products.close(); err != nil {
			return s, err
		}
	}
	if s.moved == 0 {
		s.moved = mostAdded
	}
	s.moved = max(s.moved, leastTensor)
	spec := device.Spec(tensor.F32, int(s.moved/4))
	if err := s.memory.open(dev, device.Binary{Func: device.Add}, spec, spec); err != nil {
		return s, fmt.Errorf("memory bandwidth, tensors of %d MiB: %w", s.moved>>20, err)
	}
	return s, s.memory.pass(ctx)
}

// Slice runs each of the two operations for about half of length, at least once, and records their speed.
func (s *Speed) Slice(ctx context.Context, length time.Duration) error {
	for _, w := range []*work{&s.products, &s.memory} {
		if err := w.slice(ctx, s.clock, length/2); err != nil {
			return err
		}
	}
	return nil
}

// Result returns the medians over the slices.
func (s *Speed) Result() (Compute, Bandwidth) {
	c := Compute{DType: s.dtype.String(), Size: s.size,
		TFLOPS: Figure(2 * math.Pow(float64(s.size), 3) / stats.Median(s.products.slices) / 1e12)}
	return c, Bandwidth{Copy: Figure(3 * float64(s.moved) / stats.Median(s.memory.slices) / 1e9)}
}

// Close frees all resources.
func (s *Speed) Close() error { return errors.Join(s.products.close(), s.memory.close()) }

func (w *work) open(dev device.Device, op device.Op, in ...device.TensorSpec) (err error) {
	*w = work{memory: memory{dev: dev}}
	out, err := op.Infer(in)
	if err != nil {
		return err
	}
	for _, specs := range [][]device.TensorSpec{in, out} {
		for i := range specs {
			specs[i].Layout = device.Any
		}
	}
	if w.kernel, err = dev.Compile(op, in, out); err != nil {
		return err
	}
	launch := device.Launch{Name: "measure", Kernel: w.kernel}
	for _, s := range w.kernel.In() {
		launch.In = append(launch.In, w.filled(s.Size(), s.DType))
	}
	for _, s := range w.kernel.Out() {
		launch.Out = append(launch.Out, w.region(s.Size()))
	}
	launch.Workspace = w.region(w.kernel.Workspace())
	if w.memory.open(); w.err != nil {
		return w.err
	}
	w.program, err = dev.NewProgram([]device.Step{{Launch: &launch}})
	return err
}

func (w *work) pass(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(w.stream.Run(w.program), w.stream.Sync())
}

// slice repeats the operation for length, at least once.
func (w *work) slice(ctx context.Context, c clock, length time.Duration) error {
	began, took := time.Now(), c.elapsed()
	for pass := 1; ; pass++ {
		if err := w.pass(ctx); err != nil {
			return err
		}
		if time.Since(began) >= length {
			w.slices = append(w.slices, max(took(), time.Nanosecond).Seconds()/float64(pass))
			return nil
		}
	}
}

func (w *work) close() error {
	var errs []error
	if w.program != nil {
		errs = append(errs, w.program.Close())
	}
	errs = append(errs, w.free())
	if w.kernel != nil {
		errs = append(errs, w.kernel.Close())
	}
	*w = work{}
	return errors.Join(errs...)
}

// clock measures the time of a rank's work. If the device computes on CPUs, it uses CPU time, otherwise wall time.
type clock struct {
	cpus float64 // CPU seconds per second that the rank may use; 0: use wall time
}

func newClock(cpus float64) clock {
	if _, err := platform.ProcessTime(); err != nil || !(cpus > 0) {
		return clock{}
	}
	return clock{cpus}
}

// elapsed starts a measurement. The returned function returns the time since the start, as if the CPUs did no other
// work.
func (c clock) elapsed() func() time.Duration {
	if c.cpus == 0 {
		begin := time.Now()
		return func() time.Duration { return time.Since(begin) }
	}
	busy := c.busy()
	return func() time.Duration { return time.Duration(float64(busy()) / c.cpus) }
}

// busy is the same as elapsed, but ignores the quota: its function returns CPU time, or wall time.
func (c clock) busy() func() time.Duration {
	if c.cpus == 0 {
		return c.elapsed()
	}
	begin, _ := platform.ProcessTime()
	return func() time.Duration {
		now, _ := platform.ProcessTime()
		return now - begin
	}
}
