// Package nativetest finds and opens the native libraries for tests. A test binary is not in the program's folder, so
// this package searches HETERO_LIB_DIR or build/lib of the source tree.
package nativetest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/native"
	"github.com/hetero-train/hetero-train/engine/nativelib"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// CUDAShim is the file name of the library that is built from the sources of the GPU device for the host.
const CUDAShim = "libhetero_cuda_shim.so"

// cpuKernels selects the kernels of the CPU device (package cpu). Need sets it to "guess", unless it is set: the device
// then chooses kernels without timing, so results do not depend on the load of the machine.
const cpuKernels = "HETERO_CPU_KERNELS"

// Need returns the absolute path of the folder with the libraries. For the test and the processes that it starts, Need
// sets HETERO_LIB_DIR to this folder, and makes the CPU device choose kernels without timing. files are paths relative
// to the folder. If a file is missing, or this build loads no libraries, the test skips or fails. Package needtest
// decides this for the part group ("cpu", "gloo"). If group is "", the test fails.
func Need(t testing.TB, group string, files ...string) string {
	t.Helper()
	dir, err := folder()
	if err != nil {
		t.Fatal(err)
	}
	if err := nativelib.Loadable(); err != nil && group != "" {
		needtest.Missing(t, group, err)
	}
	t.Setenv(nativelib.DirVariable, dir)
	if _, set := os.LookupEnv(cpuKernels); !set {
		t.Setenv(cpuKernels, "guess")
	}
	for _, file := range files {
		path := filepath.Join(dir, file)
		_, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) && group != "" {
			needtest.Missing(t, group, "there is no "+path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Load loads the library of a device. If the library is missing, the test skips or fails; see [Need].
func Load(t testing.TB, group, file string) *native.Library {
	t.Helper()
	lib, err := native.Load(filepath.Join(Need(t, group, file), file), nil)
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

// Open opens the first device of a library, and closes it when the test ends; see [Load].
func Open(t testing.TB, group, file string) device.Device {
	t.Helper()
	dev, err := Load(t, group, file).Open(0, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// RefuseThreads compiles the library that refuses the creation of threads and returns its path, for LD_PRELOAD; its
// source describes the variables that it reads. It skips the test if there is no C compiler.
func RefuseThreads(t testing.TB) string {
	t.Helper()
	root, err := needtest.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return Preload(t, filepath.Join(root, "engine", "nativelib", "testdata", "refuse_threads.c"))
}

// Preload compiles a C source as a library and returns its path, for LD_PRELOAD. It skips the test if there is no C
// compiler.
func Preload(t testing.TB, source string) string {
	t.Helper()
	compiler := needtest.Program(t, "compiler", "cc")
	if os.Getenv("LD_PRELOAD") != "" {
		t.Skip("another library is preloaded: ", os.Getenv("LD_PRELOAD"))
	}
	library := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(source), ".c")+".so")
	if out, err := exec.Command(compiler, "-shared", "-fPIC", "-o", library, source,
		"-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return library
}

// folder returns the folder in HETERO_LIB_DIR, or build/lib of the source tree.
func folder() (string, error) {
	if dir := os.Getenv(nativelib.DirVariable); dir != "" {
		return filepath.Abs(dir)
	}
	root, err := needtest.ModuleRoot()
	return filepath.Join(root, "build", "lib"), err
}
