package cuda

import (
	"errors"
	"fmt"
	"os"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/native"
	"github.com/hetero-train/hetero-train/engine/nativelib"
)

// Driver opens GPUs.
type Driver struct{}

var (
	_ device.Counter   = Driver{}
	_ device.Describer = Driver{}
)

// LibraryName is the file of the device's library.
const LibraryName = "libhetero_cuda.so"

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
	dev, err := opened(lib, index, opts)
	if err != nil {
		return nil, explained(err)
	}
	return dev, nil
}

// Describe implements device.Describer. It makes no context: one takes hundreds of megabytes of the GPU, and its time.
func (Driver) Describe(index int) (device.Info, error) {
	lib, err := load()
	if err != nil {
		return device.Info{}, err
	}
	info, err := lib.Describe(index)
	return info, explained(err)
}

// Count implements device.Counter. The driver is asked itself where that can be done: the library brings cuDNN and cuBLAS, which are large.
func (Driver) Count() (int, error) {
	path, err := find()
	if err != nil {
		return 0, err
	}
	n, asked, err := seen()
	if err == nil && !asked {
		var lib *native.Library
		if lib, err = native.Load(path, nil); err == nil {
			n, err = lib.Count()
		}
	}
	if err != nil {
		return 0, explained(err)
	}
	return n, readEnvironment().check(n)
}

// explained is the error of a driver that shows no GPU: that of the list in the environment where it names some.
func explained(err error) error {
	if errors.Is(err, errNoGPU) {
		if wrong := readEnvironment().check(0); wrong != nil {
			return wrong
		}
	}
	return err
}

// Available says why no GPU can be used, nil if one can.
func Available() error {
	_, err := Driver{}.Count()
	return err
}

// Library is where the device's library was found and what it was built with. The error is device.ErrUnavailable.
func Library() (path, build string, err error) {
	lib, err := load()
	if err != nil {
		return "", "", err
	}
	return lib.Path(), lib.Build(), nil
}

// load finds and loads the library, unless the driver says that it would be of no use.
func load() (*native.Library, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}
	if _, _, err := seen(); err != nil {
		return nil, explained(err)
	}
	return native.Load(path, nil)
}

// find finds the library, unless the environment hides all GPUs.
func find() (string, error) {
	if err := readEnvironment().hidden(); err != nil {
		return "", err
	}
	path, err := nativelib.Find(LibraryName)
	if err != nil {
		return "", notBuilt(err, driverFiles)
	}
	return path, widen()
}

// queuesVariable is how many hardware queues CUDA takes for a process's streams, 8 where it is not set.
const queuesVariable = "CUDA_DEVICE_MAX_CONNECTIONS"

// widen asks for as many queues as there are. Streams wait for words that work enqueued later writes (src/event.h), of which CUDA knows nothing:
// in one queue with that work they would hold it up for ever. What the user has set stays.
func widen() error {
	if _, set := os.LookupEnv(queuesVariable); set {
		return nil
	}
	return os.Setenv(queuesVariable, "32")
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
	return fmt.Errorf("%w (%v)", ErrNotBuilt, missing)
}
