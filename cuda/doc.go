// Package cuda is the room of the NVIDIA GPU device.
//
// The device is a native library behind the C ABI of package native, as the CPU's is: src/ holds its kernels, one family of ops a file,
// forward and backward together, and the streams, events and programs around them. shim/ stands in for CUDA's headers where tests
// compile the same sources for the host: every kernel passes package devicetest there, its threads as fibers. CONTRIBUTING.md lists
// what kernels may use.
//
// Convolutions and linear layers are missing yet, so no network trains on it: [Available] returns an [UnavailableError] with the reason
// why no GPU can be used. Callers ask it before they offer `device.kind = "cuda"` and show the reason to the user; with "auto" they go
// on with the CPU.
package cuda
