//go:build unix

package optim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// unfused updates each parameter with separate operations, like a framework that executes one operation at a time. The
// operations are momentum *= factor; momentum += gradient; update = momentum * rate; value += update. It exists only
// for the comparison with the fused update.
type unfused struct {
	program device.Program
	scalars device.Buffer // factor of the momentum, and the negative rate
	memory  []device.Buffer
}

// newUnfused compiles one launch for each operation and parameter.
func newUnfused(dev device.Device, cache *plan.Cache, state *plan.State, momentum device.Buffer, factor, rate float32) (
	*unfused, error) {
	u := &unfused{}
	alloc := func(bytes int64) (b device.Buffer, err error) {
		if b, err = dev.Alloc(bytes); err == nil {
			u.memory = append(u.memory, b)
		}
		return b, err
	}
	var err error
	if u.scalars, err = alloc(128); err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(u.scalars.Host(), math.Float32bits(factor))
	binary.LittleEndian.PutUint32(u.scalars.Host()[64:], math.Float32bits(-rate))
	one := device.Spec(tensor.F32, 1)
	scalar := func(at int64) device.Region { return device.Region{Buffer: u.scalars, Offset: at, Bytes: 4} }
	scratch, err := alloc(state.Params.TrainBytes)
	if err != nil {
		return nil, err
	}
	var steps []device.Step
	for i, p := range state.Params.Params {
		end := state.Params.TrainBytes
		if i+1 < len(state.Params.Params) {
			end = state.Params.Params[i+1].Offset
		}
		spec := device.Spec(tensor.F32, int(end-p.Offset)/4)
		part := func(b device.Buffer) device.Region {
			return device.Region{Buffer: b, Offset: p.Offset, Bytes: spec.Size()}
		}
		for _, l := range []struct {
			op  device.Op
			in  []device.TensorSpec
			at  []device.Region
			out device.Region
		}{
			{device.Scale{}, []device.TensorSpec{spec, one}, []device.Region{part(momentum), scalar(0)},
				part(momentum)},
			{device.Binary{Func: device.Add}, []device.TensorSpec{spec, spec},
				[]device.Region{part(momentum), part(state.Grads)}, part(momentum)},
			{device.Scale{}, []device.TensorSpec{spec, one}, []device.Region{part(momentum), scalar(64)},
				part(scratch)},
			{device.Binary{Func: device.Add}, []device.TensorSpec{spec, spec},
				[]device.Region{part(state.Values), part(scratch)}, part(state.Values)},
		} {
			k, err := cache.Compile(l.op, l.in, []device.TensorSpec{spec})
			if err != nil {
				return nil, err
			}
			steps = append(steps, device.Step{
				Launch: &device.Launch{Name: l.op.Kind(), Kernel: k, In: l.at, Out: []device.Region{l.out}}})
		}
	}
	u.program, err = dev.NewProgram(steps)
	return u, err
}

func (u *unfused) close() error {
	errs := []error{u.program.Close()}
	for _, b := range u.memory {
		errs = append(errs, b.Free())
	}
	return errors.Join(errs...)
}

// blocks returns the shapes of a transformer with the given width and number of layers. Embeddings are not included.
func blocks(width, layers int) (shapes [][]int) {
	for range layers {
		shapes = append(shapes, []int{width}, []int{width}, []int{3 * width, width}, []int{3 * width},
			[]int{width, width}, []int{width},
			[]int{width}, []int{width}, []int{4 * width, width}, []int{4 * width}, []int{width, 4 * width},
			[]int{width})
	}
	return shapes
}

// openUpdates prepares the fused and the unfused update of the same parameters on the CPU.
func openUpdates(t testing.TB, shapes [][]int) (s device.Stream, state *plan.State, fused *Optimizer, apart *unfused,
	momentum device.Buffer) {
	t.Helper()
	dev, err := cpu.Driver{}.Open(0, device.Options{Threads: 1})
	if err != nil {
		needtest.Missing(t, "cpu", err)
	}
	cache := plan.NewCache(dev)
	g, err := graph.Build(func(g *graph.Graph) {
		for i, s := range shapes {
			g.Param(fmt.Sprint("p", i), graph.Const(0), s...)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Compile(cache, g, nil)
	if err != nil {
		t.Fatal(err)
	}
	if state, err = plan.NewState(cache, p.Params()); err != nil {
		t.Fatal(err)
	}
	if fused, err = New(cache, state, state.Grads, Options{Name: "sgd", Momentum: 0.9}); err != nil {
		t.Fatal(err)
	}
	if momentum, err = state.NewFlat(state.Params.TrainBytes); err != nil {
		t.Fatal(err)
	}
	if apart, err = newUnfused(dev, cache, state, momentum, 0.9, 0.01); err != nil {
		t.Fatal(err)
	}
	if s, err = dev.NewStream(); err != nil {
		t.Fatal(err)
	}
	mem := state.Grads.Host()
	for i := 0; i+4 <= len(mem); i += 4 {
		binary.LittleEndian.PutUint32(mem[i:], math.Float32bits(float32(i%97)/97-0.5))
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), apart.close(), momentum.Free(), fused.Close(), state.Close(), p.Free(),
			cache.Close(), dev.Close()); err != nil {
			t.Error(err)
		}
	})
	return s, state, fused, apart, momentum
}

// The comparison is fair only if both updates compute the same values.
func TestTheUnfusedUpdateComputesTheSame(t *testing.T) {
	s, state, fused, apart, _ := openUpdates(t, blocks(8, 2))
	values := func() (v []float32) {
		mem := state.Values.Host()
		for i := 0; i+4 <= len(mem); i += 4 {
			v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(mem[i:])))
		}
		return v
	}
	for range 3 {
		if err := errors.Join(fused.Step(s, 0.01, 1), s.Sync()); err != nil {
			t.Fatal(err)
		}
	}
	want := values()
	clear(state.Values.Host())
	for range 3 {
		if err := errors.Join(s.Run(apart.program), s.Sync()); err != nil {
			t.Fatal(err)
		}
	}
	moved := false
	for i, got := range values() {
		moved = moved || got != 0
		if d := math.Abs(float64(got - want[i])); d > 1e-6 { // values up to 0.03, with other rounding errors
			t.Fatalf("value %d: got %g, want %g", i, got, want[i])
		}
	}
	if !moved {
		t.Error("no value has changed")
	}
}

// BenchmarkUpdate compares two updates of all parameters: one pass, and one operation at a time for each parameter. The
// updates alternate. The results are medians of CPU times, which other load affects least.
func BenchmarkUpdate(b *testing.B) {
	s, state, fused, apart, _ := openUpdates(b, blocks(256, 12))
	updates := []func() error{
		func() error { return errors.Join(fused.Step(s, 1e-9, 1), s.Sync()) },
		func() error { return errors.Join(s.Run(apart.program), s.Sync()) },
	}
	took := make([][]float64, len(updates))
	for b.Loop() {
		for i, update := range updates {
			before := cpuSeconds(b)
			if err := update(); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], 1e3*(cpuSeconds(b)-before))
		}
	}
	for i, name := range []string{"fused-ms", "unfused-ms"} {
		slices.Sort(took[i])
		b.ReportMetric(took[i][len(took[i])/2], name)
	}
	b.ReportMetric(float64(len(state.Params.Params)), "parameters")
}

// cpuSeconds returns the CPU time of this process so far.
func cpuSeconds(t testing.TB) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
