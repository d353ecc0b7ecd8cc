package cuda

import (
	"fmt"
	"strings"

	"github.com/hetero-train/hetero-train/engine/device"
)

// errNoGPU is the error of a driver without GPUs.
const errNoGPU device.AbsentError = "cuda: no GPU: the driver shows none"

// advice maps CUresults of the driver's initialisation to cause and remedy (CUDA Driver API, "Data types used by CUDA
// driver").
var advice = map[int]string{
	3:   "CUDA_ERROR_NOT_INITIALIZED: the kernel module is not loaded, or this user may not use it: run nvidia-smi",
	34:  "CUDA_ERROR_STUB_LIBRARY: libcuda.so.1 is the toolkit's stub, not a driver: remove its folder from LD_LIBRARY_PATH",
	46:  "CUDA_ERROR_DEVICE_UNAVAILABLE: another program uses the GPU exclusively, or the GPU is being reset",
	801: "CUDA_ERROR_NOT_SUPPORTED: this driver does not work in this system or container",
	802: "CUDA_ERROR_SYSTEM_NOT_READY: GPUs with NVSwitch need the service nvidia-fabricmanager, of the driver's version",
	803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: libcuda.so.1 and the kernel module have different versions: restart the machine after a driver update; in a container, remove its own libcuda.so.1",
	804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: the package cuda-compat is for data-centre GPUs only: remove its folder from LD_LIBRARY_PATH",
	999: "CUDA_ERROR_UNKNOWN: often /dev/nvidia-uvm is missing (nvidia-modprobe -u creates it), or the machine needs a restart after a driver update",
}

// startError returns the error of a driver that does not start. result is the CUresult of its initialisation. A result
// of -1 means that the driver's library cannot be opened; the argument why then contains the reason.
func startError(result int, why string) error {
	switch {
	case result == -1 && (why == "" || strings.Contains(why, "cannot open shared object file")):
		return device.AbsentError("cuda: no driver")
	case result == -1:
		return fmt.Errorf("%w: cuda: the driver's library cannot be used: %s", device.ErrUnavailable, why)
	case result == 100:
		return errNoGPU
	case advice[result] != "":
		return fmt.Errorf("%w: cuda: the driver does not start: %s", device.ErrUnavailable, advice[result])
	}
	return fmt.Errorf("%w: cuda: the driver does not start: CUDA error %d", device.ErrUnavailable, result)
}

// versionError returns an error if the driver is older than the toolkit. Within one major version, an older driver can
// run the code of a newer toolkit.
func versionError(driver, toolkit int) error {
	if driver/1000 >= toolkit/1000 {
		return nil
	}
	text := func(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }
	return fmt.Errorf("%w: cuda: the driver supports CUDA %s, this program was built with CUDA %s: install a newer driver, or build with a CUDA %d toolkit",
		device.ErrUnavailable, text(driver), text(toolkit), driver/1000)
}
