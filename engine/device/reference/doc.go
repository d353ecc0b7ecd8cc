// Package reference is a slow and simple device in plain Go. Tests compare other devices with it, and the engine uses
// it if no other device is built.
//
// # Numbers
//
// An op with f64 operands is computed in f64. Tests use its result as the true value. An op with f32, bf16 or f16
// operands is computed in f32, and sums are accumulated in f32 in row-major order. Tests compare the errors of faster
// devices with the error of this plain f32 run. Operands are converted to the computing type when a launch starts.
// Results are rounded once, to nearest even, when the launch ends.
//
// # Strictness
//
// All layouts are Plain. The device also refuses four mistakes that other devices may accept:
//
//   - operands that overlap without permission
//   - kernels that are bound to host memory
//   - labels above the last class
//   - closing a device while memory is allocated
//
// Fresh memory is filled with NaN patterns, so that reads of unwritten memory become visible.
//
// A call of a stream returns only when the work is complete. Wait blocks the caller until the event has been recorded.
// An event is not complete before its first recording, and Run resets every event that the program will record. The
// errors are those of package device.
package reference
