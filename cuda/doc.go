// Package cuda is the room of the NVIDIA GPU device.
//
// This version of the module contains no CUDA device, and the package says so: [Available] returns an
// [UnavailableError] with the reason why no GPU can be used. Callers ask it before they offer `device.kind = "cuda"`
// and show the reason to the user; with "auto" they go on with the CPU. The package imports nothing of this module and
// works on every machine.
package cuda
