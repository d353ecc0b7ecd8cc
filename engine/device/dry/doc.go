// Package dry is a device that compiles like another device but runs nothing. It gives the memory needs of a plan on a
// device that could not hold it.
//
//	dev := dry.New(real, 8<<30)            // as if it had 8 GiB; 0: the memory of the real device
//	replica, err := train.NewReplica(dev, options)
//	replica.PredictedBytes()               // bytes that training on the real device would take, exactly
//
// Kernels come from the real device, so their layouts and workspaces are exact. The device counts device memory but
// does not allocate it ([device.Buffer].Host is nil); host memory exists. Programs, streams and events do nothing, and
// waits return at once. Values read from such a device are meaningless.
//
// The caller closes the dry device before the real one. Errors are those of package device; allocations beyond the
// limit return device.ErrOutOfMemory.
package dry
