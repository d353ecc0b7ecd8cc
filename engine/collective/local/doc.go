// Package local connects ranks that are goroutines of one process. It is for tests, and for simulations with any number
// of ranks on the null device. It is written in plain Go.
//
// The rank that enters an operation last performs it, while the other ranks sleep. The package reduces buffers in host
// memory. If the host cannot access the buffer of any rank (null device), the package only advances the modelled time.
//
// # Time
//
// On devices that model time, an operation starts when two conditions hold on the modelled clock: the After events of
// all ranks are complete, and the previous operation has ended. The operation takes the time that [Model] computes.
// Then its Done event completes. The modelled overlap of communication and computation is therefore correct for any
// number of ranks, and does not depend on the machine's clock.
package local
