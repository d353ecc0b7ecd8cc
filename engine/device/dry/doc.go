// Package dry is a device that compiles as another one does, and runs nothing: what a plan needs is known from it, on a device whose memory would
// not hold it.
//
//	dev := dry.New(real, 8<<30)            // as if it had 8 GiB; 0: what the real one has
//	replica, err := train.NewReplica(dev, options)
//	replica.PredictedBytes()               // what training on the real device would take, to the byte
//
// Kernels are those of the real device: their layouts and workspaces are what they would be. Device memory is accounted for and not there
// ([device.Buffer].Host is nil), host memory is; programs, streams and events do nothing, and no event is ever waited for. Nothing that
// is read back from such a device means anything.
package dry
