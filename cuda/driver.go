//go:build cuda && cgo && linux

package cuda

// // hetero_libcuda_open belongs to third_party/libcuda, the layer between package cu and the driver.
// #include <cuda.h>
// int hetero_libcuda_open(const char **why);
import "C"

import (
	"fmt"
	"sync"

	"gorgonia.org/cu"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/native"
)

// Binding describes how this build queries the driver.
const Binding = "asks the driver"

// start initialises the driver, once in a process, and returns an error if no GPU can be used. It does not create a
// context, so a process that only counts GPUs does not use memory of the GPUs.
var start = sync.OnceValue(func() error {
	var why *C.char
	if result := C.hetero_libcuda_open(&why); result != 0 {
		text := ""
		if why != nil {
			text = C.GoString(why)
		}
		return startError(int(result), text)
	}
	return versionError(cu.Version(), C.CUDA_VERSION)
})

// seen returns the number of GPUs that the driver shows. asked reports whether the driver was queried; it is false only
// in a program that was built without this binding.
func seen() (count int, asked bool, err error) {
	if err := start(); err != nil {
		return 0, true, err
	}
	if count, err = cu.NumDevices(); err != nil {
		return 0, true, fmt.Errorf("%w: cuda: counting the GPUs: %w", device.ErrUnavailable, err)
	}
	if count == 0 {
		return 0, true, errNoGPU
	}
	return count, true, nil
}

// kept is a device that holds its primary context while it is open. The run-time library, cuDNN and NCCL also use this
// context, and none of them can destroy it in the meantime.
type kept struct {
	*native.Device
	gpu cu.Device
}

// Close implements device.Device.
func (k *kept) Close() error {
	if err := k.Device.Close(); err != nil {
		return err
	}
	if err := k.gpu.ReleasePrimaryCtx(); err != nil {
		return fmt.Errorf("%s: releasing the primary context: %w", k.Info().Name, err)
	}
	return nil
}

// opened opens a GPU in its primary context.
func opened(lib *native.Library, index int, opts device.Options) (device.Device, error) {
	fail := func(what string, err error) (device.Device, error) {
		return nil, fmt.Errorf("cuda:%d: %w: %s: %w", index, device.ErrDevice, what, err)
	}
	gpu, err := cu.GetDevice(index)
	if err != nil {
		return fail("finding the GPU", err)
	}
	mode, err := gpu.Attribute(cu.ComputeMode)
	if err != nil {
		return fail("compute mode", err)
	}
	if mode == C.CU_COMPUTEMODE_PROHIBITED {
		return nil,
			fmt.Errorf(
				"%w: cuda:%d: the GPU's compute mode is Prohibited; allow programs on it: nvidia-smi -i %d -c DEFAULT",
				device.ErrUnavailable, index, index)
	}
	if _, err := gpu.RetainPrimaryCtx(); err != nil {
		if mode == C.CU_COMPUTEMODE_EXCLUSIVE_PROCESS {
			return fail("its compute mode, Exclusive Process, allows one program at a time, and probably another program uses it: primary context",
				err)
		}
		return fail("primary context", err)
	}
	dev, err := lib.Open(index, opts)
	if err != nil {
		_ = gpu.ReleasePrimaryCtx() // the error of opening is returned instead
		return nil, err
	}
	own, ok := dev.(*native.Device)
	if !ok {
		return dev, nil
	}
	return &kept{Device: own, gpu: gpu}, nil
}
