// Package cuda is the device for NVIDIA GPUs.
//
//	var driver cuda.Driver
//	n, err := driver.Count()          // GPUs that this process sees; the error gives the reason if there is none
//	dev, err := driver.Open(0, device.Options{})
//
// The device is a native library behind the C ABI of package native. src/ contains its kernels, streams, events and
// programs. Each kernel file holds one family of ops, forward and backward. shim/ replaces CUDA's headers in tests,
// which compile the same sources for the host. On the host, fibers simulate GPU threads, and every kernel must pass
// package devicetest. CONTRIBUTING.md lists the constructs that kernels may use.
//
// # Selection of GPUs
//
// GPUs are numbered from 0 as CUDA shows them to the process: CUDA_VISIBLE_DEVICES selects and orders them.
// [ReadVisible] parses this variable, because CUDA silently hides entries that it does not understand. A process sees
// at most one MIG slice, so a program that starts several ranks assigns a slice to each rank with [Visible.Of]. The
// caller assigns GPUs to ranks.
//
// # Errors
//
//   - device.ErrUnavailable: no GPU can be used. If the error is a device.AbsentError, this is not a fault: there is no
//     driver, no GPU, or all GPUs are hidden. Any other message describes a fault to repair, such as a driver older
//     than the toolkit, a GPU below the lowest supported architecture, or a list of GPUs that do not exist.
//   - device.ErrDevice: a GPU exists, but opening it failed.
//   - A kernel that finds an id or a label beyond its table records the fault. Stream.Sync returns the error, which
//     names the operand, the element and the value. If there are several such values, the error names one of them.
package cuda
