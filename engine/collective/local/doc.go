// Package local connects ranks that are goroutines of one process: for tests, and for any number of ranks on the null
// device. It is plain Go.
//
// The rank that enters an operation last performs it, while the others sleep. Buffers with host memory are reduced. If
// no rank's buffer has host memory (null device), only time passes.
//
// # Time
//
// On devices that model time, an operation starts when the After events of all ranks are complete on the modelled clock
// and the previous operation has ended. It takes the time that [Model] computes, and completes Done at that time. The
// overlap of communication and computation is therefore correct for any number of ranks, without a clock of the
// machine.
package local
