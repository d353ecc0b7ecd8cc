package cpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/native"
)

// Driver opens the CPU device. It has one, index 0.
type Driver struct{}

var _ device.Driver = Driver{}

const (
	libraryName = "libhetero_cpu.so"
	libraryDir  = "HETERO_LIB_DIR"
	isaLimit    = "HETERO_CPU_ISA" // read by the library
	// spinCount is how many turns an idle OpenMP thread spins before it sleeps: about 0.1 ms where a turn takes 25 ns
	// (Zen 5). The gaps between kernels are shorter. OpenMP's own choice is 300,000: with as many threads as cores, each
	// core that data loading takes for a moment then costs its partner milliseconds of spinning.
	spinCount = "4000"
)

// Kind implements device.Driver.
func (Driver) Kind() string { return "cpu" }

// Open implements device.Driver.
func (Driver) Open(index int, opts device.Options) (device.Device, error) {
	if isa := os.Getenv(isaLimit); !slices.Contains([]string{"", "avx512", "avx2", "generic"}, isa) {
		return nil, fmt.Errorf("cpu: environment variable %s: got %q, want avx512, avx2 or generic", isaLimit, isa)
	}
	lib, err := load()
	if err != nil {
		return nil, err
	}
	return lib.Open(index, opts)
}

// load finds and loads the library.
func load() (*native.Library, error) {
	dirs := searchPath()
	for _, dir := range dirs {
		path := filepath.Join(dir, libraryName)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return native.Load(path, settings())
	}
	return nil, fmt.Errorf("%w: cpu: no %s in %s; run make, or set %s to the folder that holds it",
		device.ErrUnavailable, libraryName, strings.Join(dirs, ", "), libraryDir)
}

// searchPath is the folders to look in, first to last. A folder that was named is the only one.
func searchPath() []string {
	if dir := os.Getenv(libraryDir); dir != "" {
		return []string{dir}
	}
	exe, err := os.Executable()
	if err != nil {
		return nil
	}
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
	}
	beside := filepath.Dir(exe)
	return []string{
		filepath.Join(beside, "build", "lib"),
		filepath.Join(beside, "lib"),
		filepath.Join(beside, "..", "lib", "hetero-train"),
	}
}

// settings is what the OpenMP library shall find in its environment where the user has set neither of the two that
// decide how long idle threads spin. See the package comment.
func settings() []native.Setting {
	if os.Getenv("OMP_WAIT_POLICY") != "" || os.Getenv("GOMP_SPINCOUNT") != "" {
		return nil
	}
	return []native.Setting{{Name: "GOMP_SPINCOUNT", Value: spinCount}}
}
