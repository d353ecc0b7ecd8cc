// Package device is the contract between the engine and whatever computes: a CPU with oneDNN, a
// GPU, the plain-Go reference, or the null device that only models time.
//
// # Use
//
// A [Device] compiles an [Op] (plain data, for example [Conv2D]) for given operand specs into a
// [Kernel]. A list of launches, kernels bound to memory, becomes a [Program], which a [Stream] runs
// in one call. Memory is a [Buffer]; a piece of one is a [Region].
//
//	k, err := dev.Compile(op, in, out) // out from op.Infer(in), layouts Plain, Any or pinned
//	p, err := dev.NewProgram([]device.Step{{Launch: &device.Launch{Kernel: k, In: …, Out: …}}})
//	err = stream.Run(p)
//	err = stream.Sync()
//
// # Layouts
//
// A tensor in memory is row-major ([Plain]) or in a private layout of the device. Compile takes [Any]
// where the device may choose and answers, in Kernel.In and Kernel.Out, what it wants. Who binds
// memory must bring operands in exactly those layouts ([Reorder] changes one into another). Layout
// numbers of two devices have nothing to do with each other. Where a private layout pads a tensor, its
// padding holds zeros, always.
//
// # What changes from step to step
//
// The learning rate, 1/count, dropout keys, sample ids: all are operands in device memory, so that a
// compiled program (or a captured graph) runs unchanged. Op fields are fixed when compiled.
//
// # Duties of the caller
//
// A Stream, and a Device's Compile, are used by one goroutine at a time each; other calls may come
// from any goroutine. Memory, kernels, programs, streams and events are closed on purpose, never by a
// finalizer: programs before kernels, kernels and buffers before the device.
//
// # Errors
//
// [ErrUnsupported] from Compile: the device has no such kernel; the planner tries the op's
// decomposition. [ErrOutOfMemory] from an allocation. [ErrDevice]: the device itself failed (exit code 6).
// Anything else is a wrong argument and says which operand, got and want.
package device
