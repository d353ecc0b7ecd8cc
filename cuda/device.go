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

// LibraryName is the file name of the device's library.
const LibraryName = "libhetero_cuda.so"

// Lacks lists the ops for which the planner uses other ops of this device (devicetest.Caps).
var Lacks = []string{device.LinearCrossEntropyDiff{}.Kind()}

// ErrNotBuilt is the error of a program without the device's library, on a machine without a GPU driver.
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

// Describe implements device.Describer. It creates no context, because a context takes hundreds of megabytes of the
// GPU.
func (Driver) Describe(index int) (device.Info, error) {
	lib, err := load()
	if err != nil {
		return device.Info{}, err
	}
	info, err := lib.Describe(index)
	return info, explained(err)
}

// Count implements device.Counter. It queries the driver directly if possible, because the library loads cuDNN and
// cuBLAS, which are large.
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

// explained returns err. If the driver finds no GPU and the environment's list of GPUs is wrong, explained returns the
// list's error instead.
func explained(err error) error {
	if errors.Is(err, errNoGPU) {
		if wrong := readEnvironment().check(0); wrong != nil {
			return wrong
		}
	}
	return err
}

// Available returns nil if a GPU can be used, otherwise an error with the reason.
func Available() error {
	_, err := Driver{}.Count()
	return err
}

// Library returns the path of the device's library and its build information. The error is device.ErrUnavailable.
func Library() (path, build string, err error) {
	lib, err := load()
	if err != nil {
		return "", "", err
	}
	return lib.Path(), lib.Build(), nil
}

// load finds and loads the library, unless the driver reports that no GPU can be used.
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

// find returns the path of the library, or an error if the environment hides all GPUs.
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

// queuesVariable sets the number of hardware queues for a process's streams; the default is 8.
const queuesVariable = "CUDA_DEVICE_MAX_CONNECTIONS"

// widen requests the maximum number of queues. A stream can wait for a memory word that later work writes
// (src/event.h). CUDA does not know this dependency: if the wait and the work were in the same queue, the wait would
// block the work forever. If the user has set a value, widen keeps it.
func widen() error {
	if _, set := os.LookupEnv(queuesVariable); set {
		return nil
	}
	return os.Setenv(queuesVariable, "32")
}

// driverFiles exist if a driver is installed, natively or in WSL.
var driverFiles = []string{"/proc/driver/nvidia/version", "/dev/dxg"}

// notBuilt returns the error of a program without the library. On a machine with a driver, the error states how to
// build the library.
func notBuilt(missing error, driverFiles []string) error {
	for _, file := range driverFiles {
		if _, err := os.Stat(file); err == nil {
			return fmt.Errorf(
				"%w: cuda: this machine has an NVIDIA driver, but this build contains no CUDA device; %s (%v)",
				device.ErrUnavailable, nativelib.Remedy("make cuda-toolchain && make CUDA=on", "docs/gpu.md"), missing)
		}
	}
	return fmt.Errorf("%w (%v)", ErrNotBuilt, missing)
}
