// Package native runs the devices that are written in C++: it opens a shared library at run time and speaks the C ABI
// of hetero_device.h with it. It is the only package of the engine that uses cgo for compute.
//
// # Use
//
//	lib, err := native.Load("build/lib/libhetero_cpu.so", nil)
//	dev, err := lib.Open(0, device.Options{})
//
// The device is a [device.Device]; it also implements [device.LayoutNamer], [device.PeakMeasurer] and [device.Slowable]. A library stays
// loaded for the life of the process: its worker threads cannot be taken back.
//
// # Duties of the caller
//
// Those of package device. Mistakes are errors here, never crashes: objects know who depends on them, so that closing a
// kernel or freeing a buffer that a program is bound to, closing a device with open objects, using something
// closed, or using a stream from two goroutines at once is refused with a reason.
//
// # Memory
//
// Buffers lie in C memory; C keeps no pointer into Go's. Stream.Run, Copy, Record, Wait, Sync and Event.Done and
// WaitHost allocate nothing on Go's heap.
//
// # Errors
//
// The sentinels of package device, and os.ErrDeadlineExceeded from Event.WaitHost. Load and Open answer
// [device.ErrUnavailable] where the library cannot be loaded or finds no device.
package native
