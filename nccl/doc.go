// Package nccl is the room of the NCCL communicator, which moves gradients between NVIDIA GPUs.
//
// This version of the module contains no NCCL communicator, and the package says so: [Available] returns an
// [UnavailableError] with the reason why NCCL cannot be used. Callers ask it before they offer
// `parallel.backend = "nccl"` and show the reason to the user; with "auto" they go on without it. The package imports
// nothing of this module and works on every machine.
package nccl
