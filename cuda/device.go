package cuda

import (
	"fmt"
	"os"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/native"
	"github.com/hetero-train/hetero-train/engine/nativelib"
)

// Driver opens GPUs.
type Driver struct{}

var _ device.Counter = Driver{}

const libraryName = "libhetero_cuda.so"

// ErrNotBuilt is why a program without the device's library uses no GPU, on a machine that has none either.
const ErrNotBuilt device.AbsentError = "cuda: this build contains no CUDA device"

// Kind implements device.Driver.
func (Driver) Kind() string { return "cuda" }

// Open implements device.Driver.
func (d Driver) Open(index int, opts device.Options) (device.Device, error) {
	lib, err := load()
	if err != nil {
		return nil, err
	}
	return lib.Open(index, opts)
}

// Count implements device.Counter.
func (d Driver) Count() (int, error) {
	lib, err := load()
	if err != nil {
		return 0, err
	}
	n, err := lib.Count()
	if err != nil {
		return 0, err
	}
	return n, readEnvironment().check(n)
}

// Library is where the device's library was found and what is inside.
func Library() (path, build string, err error) {
	lib, err := load()
	if err != nil {
		return "", "", err
	}
	return lib.Path(), lib.Build(), nil
}

// Available says why no GPU can be used, nil if one can.
func Available() error {
	_, err := Driver{}.Count()
	return err
}

// load finds and loads the library, unless it is clear without it that there is no GPU: cuDNN and cuBLAS, which come with it, are large.
func load() (*native.Library, error) {
	if err := readEnvironment().hidden(); err != nil {
		return nil, err
	}
	path, err := nativelib.Find(libraryName)
	if err != nil {
		return nil, notBuilt(err, driverFiles)
	}
	return native.Load(path, nil)
}

// driverFiles are there where a driver is, on a machine of its own and in WSL.
var driverFiles = []string{"/proc/driver/nvidia/version", "/dev/dxg"}

// notBuilt is the error of a program without the library. A machine with a driver could do better.
func notBuilt(missing error, driverFiles []string) error {
	for _, file := range driverFiles {
		if _, err := os.Stat(file); err == nil {
			return fmt.Errorf("%w: cuda: this machine has an NVIDIA driver, but this build no CUDA device: build with: make cuda-toolchain && make CUDA=on (%v)", device.ErrUnavailable, missing)
		}
	}
	return ErrNotBuilt
}
