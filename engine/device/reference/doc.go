// Package reference is a device in plain Go, slow and simple. Other devices are tested against it, and the engine uses
// it if no other device is built.
//
// # Numbers
//
// An op with f64 operands is computed in f64; its result is the truth. With f32, bf16 or f16 operands it is computed in
// f32, with every sum in an f32 accumulator in row-major order. This is the "plain f32 run", whose error is the measure
// for faster devices. Operands are decoded when a launch starts. Results are rounded once, to nearest even, when it
// ends.
//
// # Strictness
//
// All layouts are Plain. The device also refuses mistakes that other devices may accept: operands that overlap without
// permission, kernels bound to host memory, labels above the last class, and closing a device while memory is
// allocated. Fresh memory is filled with NaN patterns, so that reads of unwritten memory show.
//
// Streams complete their work before a call returns. Wait blocks the caller until the event has been recorded. An event
// is not complete before its first recording, and Run resets every event that the program will record. Errors are those
// of package device.
package reference
