package cuda_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/native"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// The shim refuses calls that may wait for all streams of the GPU while a stream is blocked on an event of the host.
// These calls load code or free memory.

const patience = time.Minute

// must ends the test if err is not nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bench is a device with two streams. The first stream can be blocked.
type bench struct {
	t         *testing.T
	dev       device.Device
	first     device.Stream
	second    device.Stream
	gate      device.Event
	standing  device.Program
	leftovers []func() error
}

func newBench(t *testing.T, lib *native.Library) *bench {
	t.Helper()
	b := &bench{t: t, dev: open(t, lib)}
	var err error
	b.first, err = b.dev.NewStream()
	must(t, err)
	b.second, err = b.dev.NewStream()
	must(t, err)
	b.gate, err = b.dev.NewEvent()
	must(t, err)
	b.standing, err = b.dev.NewProgram([]device.Step{{Wait: b.gate}})
	must(t, err)
	t.Cleanup(func() {
		must(t, b.gate.Complete())
		must(t, errors.Join(b.first.Sync(), b.second.Sync()))
		for _, free := range b.leftovers {
			must(t, free())
		}
		must(t, errors.Join(b.standing.Close(), b.gate.Close(), b.first.Close(), b.second.Close()))
		if notes := b.dev.(device.Noting).Notes(); notes != "" {
			t.Errorf("the device notes: %s", notes)
		}
	})
	return b
}

// stand blocks the first stream until goOn completes the event gate.
func (b *bench) stand() { must(b.t, b.first.Run(b.standing)) }
func (b *bench) goOn()  { must(b.t, b.gate.Complete()) }

// whenQuiet calls do while a stream is blocked. do needs quiescence. whenQuiet returns as soon as do waits for it. The
// channel receives the result of do.
func (b *bench) whenQuiet(do func() error) <-chan error {
	b.t.Helper()
	waiting := filepath.Join(b.t.TempDir(), "waiting")
	b.t.Setenv("HETERO_SHIM_WAITING", waiting)
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(waiting); err == nil {
			return ended
		}
		select {
		case err := <-ended:
			b.t.Fatalf("it ended while a stream stood: %v", err)
		default:
		}
		if time.Since(begun) > patience {
			b.t.Fatalf("it does not wait for a quiet moment after %v", patience)
		}
	}
}

func (b *bench) alloc(bytes int64, host bool) device.Buffer {
	b.t.Helper()
	take := b.dev.Alloc
	if host {
		take = b.dev.AllocHost
	}
	m, err := take(bytes)
	must(b.t, err)
	return m
}

// program creates a program of one launch of op, with its own buffers. The device must free them only at quiescence.
func (b *bench) program(op device.Op, in ...device.TensorSpec) (device.Program, error) {
	k, err := compiled(b.dev, op, in...)
	if err != nil {
		return nil, err
	}
	launch := device.Launch{Name: op.Kind(), Kernel: k}
	var memory []device.Buffer
	place := func(bytes int64) device.Region {
		m := b.alloc(bytes, false)
		memory = append(memory, m)
		return device.Whole(m)
	}
	for _, s := range k.In() {
		launch.In = append(launch.In, place(s.Size()))
	}
	for _, s := range k.Out() {
		launch.Out = append(launch.Out, place(s.Size()))
	}
	for _, a := range device.Aliases(op) {
		launch.Out[a.Out] = launch.In[a.In]
	}
	if n := k.Workspace(); n > 0 {
		launch.Workspace = place(n)
	}
	p, err := b.dev.NewProgram([]device.Step{{Launch: &launch}})
	b.leftovers = append(b.leftovers, func() error {
		var errs []error
		if p != nil {
			errs = append(errs, p.Close())
		}
		errs = append(errs, k.Close())
		for _, m := range memory {
			errs = append(errs, m.Free())
		}
		return errors.Join(errs...)
	})
	return p, err
}

// kinds are ops of hand-written kernels, of cuBLASLt and of cuDNN.
var kinds = []struct {
	name string
	op   device.Op
	in   []device.TensorSpec
}{
	{"a kernel of ours", device.Unary{Func: device.Neg}, []device.TensorSpec{device.Spec(tensor.F32, 64)}},
	{"a product", device.Linear{}, []device.TensorSpec{device.Spec(tensor.F32, 3, 5), device.Spec(tensor.F32, 2, 5)}},
	{"a convolution", device.Conv2D{Window: unitWindow, Groups: 1},
		[]device.TensorSpec{device.Spec(tensor.F32, 2, 4, 5, 5), device.Spec(tensor.F32, 8, 4, 1, 1)}},
}

// The first run of a program must not load code. This must hold if this process timed the algorithms, and if another
// process stored the choice.
func TestAFirstRunLoadsNothing(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, timed := range []bool{true, false} {
		lib := freshShim(t, fakeCublasLt)
		for _, c := range kinds {
			t.Run(fmt.Sprintf("%s, timed here: %v", c.name, timed), func(t *testing.T) {
				b := newBench(t, lib)
				p, err := b.program(c.op, c.in...)
				must(t, err)
				b.stand()
				must(t, errors.Join(b.second.Run(p), b.second.Sync()))
			})
		}
	}
}

// If a program is created while a stream is blocked, the device must load the code only after the stream continues.
func TestPlansAreMadeInQuietMoments(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	lib := freshShim(t, fakeCublasLt)
	for _, c := range kinds {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, lib)
			b.stand()
			var p device.Program
			made := b.whenQuiet(func() (err error) {
				p, err = b.program(c.op, c.in...)
				return err
			})
			b.goOn()
			must(t, <-made)
			must(t, b.second.Run(p))
		})
	}
}

// A free must not wait for quiescence. An allocation that needs the freed memory must wait for quiescence, and then
// succeed.
func TestWhatIsFreedWaitsForAQuietMoment(t *testing.T) {
	t.Setenv("HETERO_SHIM_MEMORY_KIB", "8192")
	b := newBench(t, freshShim(t, fakeCublasLt))
	for _, c := range kinds {
		_, err := b.program(c.op, c.in...)
		must(t, err)
	}
	running, stats := device.Spec(tensor.F32, 8), device.Spec(tensor.F32, 1, 8)
	// the kernel of this op has a table in device memory
	_, err := b.program(device.BatchNormRunning{Momentum: 0.1, Counts: []int64{4}}, running, running, stats, stats)
	must(t, err)
	const most = 5 << 20
	large, pinned := b.alloc(most, false), b.alloc(1<<20, true)
	event, err := b.dev.NewEvent()
	must(t, err)
	b.stand()
	for _, free := range append(b.leftovers, large.Free, pinned.Free, event.Close) {
		must(t, free())
	}
	b.leftovers = nil
	if allocated, _ := b.dev.Memory(); allocated != 0 {
		t.Errorf("%d bytes count as allocated, want 0", allocated)
	}
	taken := b.whenQuiet(func() error {
		m, err := b.dev.Alloc(most) // the GPU has room for one such buffer
		if err == nil {
			err = m.Free()
		}
		return err
	})
	b.goOn()
	must(t, <-taken)
}

// If the GPU is lost, a wait must return the error of the device. This must hold for every time limit.
func TestAWaitEndsWhenTheGPUIsLost(t *testing.T) {
	t.Setenv("HETERO_SHIM_LOST_AFTER", "1")
	lib := freshShim(t, fakeCublasLt)
	dev, err := lib.Open(0, device.Options{}) // not closed, because nothing on a lost GPU can be closed
	must(t, err)
	e, err := dev.NewEvent()
	must(t, err)
	s, err := dev.NewStream()
	must(t, err)
	must(t, s.Record(e))
	must(t, e.WaitHost(patience))
	must(t, e.Reset())
	must(t, s.Record(e))
	err = e.WaitHost(patience)
	if !errors.Is(err, device.ErrDevice) || !strings.Contains(err.Error(), "the GPU does not answer") {
		t.Errorf("got %v, want a device failure", err)
	}
}

// The device must keep the value of CUDA_DEVICE_MAX_CONNECTIONS that the user has set, and must note a value that is
// too small.
func TestTooFewHardwareQueuesAreNoted(t *testing.T) {
	lib := loadShim(t)
	const queues = "CUDA_DEVICE_MAX_CONNECTIONS"
	for _, c := range []struct{ value, want string }{
		{"1", queues + ": got 1, want at least 16"},
		{"8", queues + ": got 8, want at least 16"},
		{"32", ""},
	} {
		t.Setenv(queues, c.value)
		notes := open(t, lib).(device.Noting).Notes()
		if c.want == "" && notes != "" || !strings.Contains(notes, c.want) {
			t.Errorf("%s: got the notes %q, want %q", c.value, notes, c.want)
		}
		os.Unsetenv(queues)
	}
}
