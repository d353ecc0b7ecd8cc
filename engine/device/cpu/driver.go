package cpu

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/native"
	"github.com/hetero-train/hetero-train/engine/nativelib"
)

// Driver opens the CPU device. Its only index is 0.
type Driver struct{}

var _ device.Driver = Driver{}

// Lacks lists the ops for which the planner uses other ops of this device (devicetest.Caps).
var Lacks = []string{device.LinearCrossEntropyBoth{}.Kind()}

const (
	libraryName = "libhetero_cpu.so"
	isaLimit    = "HETERO_CPU_ISA"     // environment variable that the library reads
	kernelNames = "HETERO_CPU_KERNELS" // environment variable that the library reads
	kernelTimes = "HETERO_CPU_TIMES"   // environment variable that the library reads
	threadLimit = "OMP_NUM_THREADS"
	// spinCount is the number of iterations for which an idle OpenMP thread spins before it sleeps. This takes about
	// 0.1 ms, at 25 ns per iteration (Zen 5), which is longer than the gaps between kernels. OpenMP's default is
	// 300,000 iterations. With this default and one thread per core, the other threads would spin for milliseconds
	// whenever data loading uses a core.
	spinCount = "4000"
)

// Kind implements device.Driver.
func (Driver) Kind() string { return "cpu" }

// Open implements device.Driver.
func (Driver) Open(index int, opts device.Options) (device.Device, error) {
	if err := checkEnvironment(); err != nil {
		return nil, fmt.Errorf("%w: cpu: environment variable %w", device.ErrUnavailable, err)
	}
	lib, err := load()
	if err != nil {
		return nil, err
	}
	if opts.Threads != 0 {
		return lib.Open(index, opts)
	}
	most, err := ThreadLimit(os.LookupEnv)
	if err != nil {
		return nil, fmt.Errorf("%w: cpu: %w", device.ErrUnavailable, err)
	}
	dev, err := lib.Open(index, opts)
	if err != nil || most == 0 || dev.Info().Threads <= most {
		return dev, err
	}
	if err := dev.Close(); err != nil {
		return nil, err
	}
	return lib.Open(index, device.Options{Threads: most})
}

// opsOf lists the kinds of ops for which each name of HETERO_CPU_KERNELS has a kernel.
var opsOf = map[string][]string{"tiles": {"linear layers", "attention"}, "onednn": {"linear layers"},
	"rows": {"attention"}}

// checkKernels checks the value of HETERO_CPU_KERNELS. For each op, the first name with a kernel is used. A name is
// therefore an error if earlier names have kernels for all of its ops.
func checkKernels(list string) error {
	decidedBy := map[string]string{} // the name that is used for each kind of op
	for name := range strings.SplitSeq(list, ",") {
		if name == "" || name == "guess" {
			continue
		}
		if opsOf[name] == nil {
			return fmt.Errorf("%s: got %q, want a list of tiles, onednn, rows and guess", kernelNames, name)
		}
		hasEffect := false
		var earlier []string
		for _, op := range opsOf[name] {
			if by := decidedBy[op]; by != "" {
				earlier = append(earlier, fmt.Sprintf("%s already selects the kernels of %s", by, op))
				continue
			}
			decidedBy[op], hasEffect = name, true
		}
		if !hasEffect {
			return fmt.Errorf("%s: got %q, but %s has no effect: %s; leave one of the names out", kernelNames, list,
				name, strings.Join(earlier, ", and "))
		}
	}
	return nil
}

// checkEnvironment checks the variables that the library reads. See the package comment.
func checkEnvironment() error {
	if isa := os.Getenv(isaLimit); !slices.Contains([]string{"", "avx512_bf16", "avx512", "avx2", "generic", "amx"},
		isa) {
		return fmt.Errorf("%s: got %q, want avx512_bf16, avx512, avx2, generic or amx", isaLimit, isa)
	}
	if err := checkKernels(os.Getenv(kernelNames)); err != nil {
		return err
	}
	times := os.Getenv(kernelTimes)
	if times == "" {
		return nil
	}
	for part := range strings.SplitSeq(times, ",") {
		name, value, _ := strings.Cut(part, "=")
		us, err := strconv.ParseFloat(value, 64)
		if !slices.Contains([]string{"tiles", "onednn", "rows"}, name) || err != nil || !(us > 0) || math.IsInf(us, 0) {
			return fmt.Errorf("%s: got %q, want a list such as tiles=5,onednn=3 with the times of tiles, onednn and rows in microseconds",
				kernelTimes, part)
		}
	}
	return nil
}

// ThreadLimit returns the value of OMP_NUM_THREADS: the largest number of threads of a device that is opened without a
// number of threads. 0 means no limit. The variable may be a list with one number for each level of nested parallel
// regions. ThreadLimit returns the first number, because regions are not nested.
func ThreadLimit(lookup func(string) (string, bool)) (int, error) {
	text, ok := lookup(threadLimit)
	if !ok || strings.TrimSpace(text) == "" {
		return 0, nil
	}
	first, _, _ := strings.Cut(text, ",")
	n, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || n < 1 {
		return 0, fmt.Errorf("environment variable %s: got %q, want a number of threads from 1", threadLimit, text)
	}
	return n, nil
}

// Library returns the path of the device's library and its build information. The error is device.ErrUnavailable.
func Library() (path, build string, err error) {
	lib, err := load()
	if err != nil {
		return "", "", err
	}
	return lib.Path(), lib.Build(), nil
}

// load finds and loads the library.
func load() (*native.Library, error) {
	path, err := nativelib.Find(libraryName)
	if err != nil {
		return nil, fmt.Errorf("%w: cpu: %w", device.ErrUnavailable, err)
	}
	return native.Load(path, settings())
}

// settings returns environment variables for the OpenMP library, if the user has set neither of the two variables that
// determine how long idle threads spin. See the package comment.
func settings() []native.Setting {
	if os.Getenv("OMP_WAIT_POLICY") != "" || os.Getenv("GOMP_SPINCOUNT") != "" {
		return nil
	}
	return []native.Setting{{Name: "GOMP_SPINCOUNT", Value: spinCount}}
}
