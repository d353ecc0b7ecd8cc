// Package dry is a device that compiles like another device, but does not run programs. A caller can thus compute how
// much memory a plan needs, even if the real device cannot hold the plan.
//
//	dev := dry.New(real, 8<<30)            // as if it had 8 GiB; 0: the memory of the real device
//	replica, err := replica.New(dev, options)
//	replica.PredictedBytes()               // exact number of bytes that training on the real device would take
//
// The real device compiles the kernels, so their layouts and workspaces are exact. If the real device chooses between
// kernels by timing, the compilation runs the kernels on small samples and stores the choices. A later training run
// uses the same choices. Nothing else runs. The dry device counts device memory but does not allocate it
// ([device.Buffer].Host is nil). It does allocate host memory. Programs, streams and events do nothing, and waits
// return immediately. Values read from a dry device are meaningless.
//
// The caller closes the dry device before the real one. The errors are those of package device; an allocation beyond
// the limit returns device.ErrOutOfMemory.
package dry
