// Package reference is a device in plain Go: slow, and as obviously right as it can be made. It is the
// oracle that other devices are tested against, and what the engine runs on where nothing else is built.
//
// # Numbers
//
// An op whose operands are f64 is computed in f64: that is the truth. With f32, bf16 or f16 operands it is
// computed in f32, every sum in an f32 accumulator in row-major order: that is the "plain f32 run" whose
// error is the yardstick for faster devices. Operands are decoded when a launch starts and results rounded
// once, to nearest even, when it ends.
//
// # Strictness
//
// All layouts are Plain. Beyond what the contract asks, mistakes that other devices may let pass are
// errors here: operands that overlap without leave, kernels bound to host memory, labels beyond the last
// class, a device closed while memory is out. Fresh memory is filled with NaN patterns, so that a read of
// something never written shows.
//
// Streams are done when a call returns; Wait blocks the caller until the event has been recorded. An event
// is not complete before its first recording, and Run takes back the completion of every event that the
// program is going to record.
package reference
