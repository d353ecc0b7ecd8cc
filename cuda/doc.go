// Package cuda is the device of NVIDIA's GPUs.
//
//	var driver cuda.Driver
//	n, err := driver.Count()          // GPUs that this process sees; the error says why there is none
//	dev, err := driver.Open(0, device.Options{})
//
// The device is a native library behind the C ABI of package native, as the CPU's is: src/ holds its kernels, one family of ops a file,
// forward and backward together, and the streams, events and programs around them. shim/ stands in for CUDA's headers where tests
// compile the same sources for the host: every kernel passes package devicetest there, its threads as fibers. CONTRIBUTING.md lists
// what kernels may use.
//
// # Which GPU
//
// GPUs count from 0 as CUDA shows them to the process: CUDA_VISIBLE_DEVICES chooses and orders them. [ReadVisible] reads it, since CUDA hides
// what it does not understand without a word. A process sees one MIG slice at most, so whoever starts several ranks gives each its
// own: [Visible.Of]. Which rank takes which GPU is the caller's matter.
//
// # Errors
//
// What stands in the way of using any GPU is device.ErrUnavailable. A device.AbsentError among them says that nothing is wrong: there is no driver, no
// GPU, or all are hidden. What else is said (a driver older than the toolkit, a GPU below the lowest architecture, a list of GPUs that do not exist) is
// something to mend. A GPU that is there and fails while it is opened is device.ErrDevice.
package cuda
