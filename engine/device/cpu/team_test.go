package cpu

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// largeConvs are convolutions with large weight gradients. Each thread computes the gradient of a part of the batch.
var largeConvs = []smallConv{
	{5, 16, 30, 32, 32, [2]int{3, 3}, [2]int{1, 1}, [2]int{1, 1}, [2]int{1, 1}, true}, // parts of different sizes
	{6, 32, 31, 29, 16, [2]int{1, 1}, [2]int{1, 1}, [2]int{0, 0}, [2]int{1, 1}, false},
	// the first layer of a network; 2 samples for 3 threads
	{2, 3, 64, 64, 16, [2]int{7, 7}, [2]int{2, 2}, [2]int{3, 3}, [2]int{1, 1}, false},
	// so small that a single thread computes it
	{4, 16, 9, 9, 10, [2]int{1, 1}, [2]int{1, 1}, [2]int{0, 0}, [2]int{1, 1}, true},
}

func TestGradientsByPartsOfTheBatch(t *testing.T) {
	for _, threads := range []int{2, 3} {
		dev := open(t, device.Options{Threads: threads})
		defer dev.Close()
		for _, s := range largeConvs {
			for _, dt := range []tensor.DType{tensor.F32, tensor.BF16} {
				t.Run(fmt.Sprintf("%d threads/%v/%v", threads, s, dt), func(t *testing.T) { s.check(t, dev, dt) })
			}
		}
	}
}

// weightGradient returns the bytes of the weight gradient of s.
func (s smallConv) weightGradient(t *testing.T, dev device.Device) string {
	image := devicetest.Random(tensor.F32, tensor.Shape{s.n, s.c, s.h, s.w}, 1, devicetest.Uniform(-1, 1))
	dst, err := s.op().Infer([]device.TensorSpec{
		image.Spec, {DType: tensor.F32, Shape: tensor.Shape{s.o, s.c, s.kernel[0], s.kernel[1]}}})
	if err != nil {
		t.Fatal(err)
	}
	diff := devicetest.Random(tensor.F32, dst[0].Shape, 4, devicetest.Uniform(-1, 1))
	got := run(t, dev, device.Conv2DDiffWeights{Conv2D: s.op(), Kernel: s.kernel}, []devicetest.Tensor{image, diff})
	return string(reference.Encode(tensor.F32, got.Values))
}

// If some threads wait for a CPU, other threads compute their parts, and the team may shrink. The results must remain
// bit-equal.
func TestBitsDoNotDependOnLoad(t *testing.T) {
	dev := open(t, device.Options{Threads: 4})
	defer dev.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := largeConvs[0]
	quiet := s.weightGradient(t, dev)
	var stop atomic.Bool
	defer stop.Store(true)
	for range 2 * runtime.NumCPU() {
		go func() {
			for !stop.Load() {
			}
		}()
	}
	for i := range 20 {
		if got := s.weightGradient(t, dev); got != quiet {
			t.Fatalf("run %d next to busy threads gives other bits than a run without them", i)
		}
	}
}

// The number of active threads must adapt to the CPU time that the threads get. The test replaces the machine by a
// table. For each number of threads, the table states the number of CPUs that they get.
func TestCrewSettlesAtTheFasterCount(t *testing.T) {
	compiler := needtest.Program(t, "compiler", "c++")
	program := filepath.Join(t.TempDir(), "crew")
	if out, err := exec.Command(compiler, "-std=c++17", "-O1", "-Isrc", "-o", program, "testdata/crew_main.cc",
		"src/crew.cc").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		name string
		size string
		gets string // number of CPUs that 1, 2, 4 … threads get; semicolons separate periods of 20 s
		want string // number of active threads at the end of each period
	}{
		{"quiet", "2", "1,1.9", "2"},
		{"one thread gets more than two", "2", "0.65,0.5", "1"},
		{"two get little, but more", "2", "0.5,0.7", "2"},
		{"load ends", "2", "0.65,0.5;1,1.9", "1 2"},
		{"load comes", "2", "1,1.9;0.65,0.5", "2 1"},
		{"a quarter of eight", "8", "0.9,1.6,1.4,1.0", "2"},
		{"and back", "8", "0.9,1.6,1.4,1.0;1,2,4,7.8", "2 8"},
		{"alone", "1", "0.3", "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := exec.Command(program, c.size, c.gets).CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// While a Meter exists, regions read the CPU time of their threads. If an exception ends the metered code, the Meter
// must stop.
func TestAMeterEndsWithItsScope(t *testing.T) {
	compiler := needtest.Program(t, "compiler", "c++")
	program := filepath.Join(t.TempDir(), "meter")
	if out, err := exec.Command(compiler, "-std=c++17", "-O1", "-fopenmp", "-DHT_OWN_TEAM=1", "-Isrc", "-I../native",
		"-I../native/src", "-rdynamic", "-o", program,
		"testdata/meter_main.cc", "src/team.cc", "src/crew.cc", "../native/src/headroom.cc",
		"-ldl", "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(program).CombinedOutput()
	if got, want := string(out), "metered: reads\nafter an exception: no reads\n"; err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestThreadLimit(t *testing.T) {
	for _, c := range []struct {
		text string
		want int
		err  string
	}{
		{"", 0, ""}, {" 3 ", 3, ""}, {"4,2", 4, ""},
		{"0", 0, "OMP_NUM_THREADS"}, {"-1", 0, "OMP_NUM_THREADS"}, {"many", 0, `got "many", want a number of threads`},
	} {
		got, err := ThreadLimit(func(name string) (string, bool) { return c.text, name == "OMP_NUM_THREADS" })
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: got %d, %v; want %d and an error with %q", c.text, got, err, c.want, c.err)
		}
	}
	need(t)
	t.Setenv("OMP_NUM_THREADS", "1")
	for asked, want := range map[int]int{0: 1, 2: 2} { // an explicit number of threads has precedence
		dev := open(t, device.Options{Threads: asked})
		if got := dev.Info().Threads; got != want {
			t.Errorf("OMP_NUM_THREADS=1, %d threads asked for: got %d, want %d", asked, got, want)
		}
		dev.Close()
	}
}
