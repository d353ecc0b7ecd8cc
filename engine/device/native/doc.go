// Package native runs devices that are written in C++. It opens a shared library at run time and calls the C ABI of
// hetero_device.h. It is the only package of the engine that uses cgo for compute.
//
// # Use
//
//	lib, err := native.Load("build/lib/libhetero_cpu.so", nil)
//	dev, err := lib.Open(0, device.Options{})
//
// The device is a [device.Device]; it also implements [device.LayoutNamer], [device.PeakMeasurer] and
// [device.Slowable]. A library stays loaded until the process ends, because its worker threads cannot be unloaded.
//
// # Duties of the caller
//
// The caller has the duties that package device lists. A violation causes an error, never a crash, because each object
// counts its users. The following actions return an error with the reason:
//
//   - closing a kernel, or freeing a buffer, to which a program is bound
//   - closing a device with open objects
//   - using a closed object
//   - using a stream from two goroutines concurrently
//
// # Memory
//
// Buffers are C memory, and C code does not keep pointers to Go memory. Stream.Run, Copy, Record, Wait, Sync,
// Event.Done and Event.WaitHost do not allocate on Go's heap.
//
// # Errors
//
// Errors wrap the sentinels of package device. Event.WaitHost may also return os.ErrDeadlineExceeded. Load and Open
// return [device.ErrUnavailable] if the library cannot be loaded or finds no device.
package native
