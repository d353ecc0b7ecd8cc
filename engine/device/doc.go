// Package device defines the contract between the engine and computing devices. These are CPUs (with oneDNN), GPUs, the
// reference device in plain Go, and the null device, which only models time.
//
// # Use
//
// A [Device] compiles an [Op] (plain data, for example [Conv2D]) for given operand specs into a [Kernel]. A [Program]
// is a list of launches, which are kernels bound to memory. A [Stream] runs a program in one call. A [Buffer] is
// memory; a [Region] is a part of a buffer.
//
//	k, err := dev.Compile(op, in, out) // out: the specs of op.Infer(in), with the layout Plain, Any or a required one
//	p, err := dev.NewProgram([]device.Step{{Launch: &device.Launch{Kernel: k, In: …, Out: …}}})
//	err = stream.Run(p)
//	err = stream.Sync()
//
// # Layouts
//
// A tensor in memory is row-major ([Plain]) or in a private layout of the device. Compile accepts [Any] where the
// device may choose a layout, and returns the choice in Kernel.In and Kernel.Out. Operands of a launch must have
// exactly the chosen layouts; [Reorder] converts between layouts. Layout numbers of different devices are not
// comparable. Padding of a private layout is always zero.
//
// # Values that change from step to step
//
// Values that change in every step, such as the learning rate, 1/count, dropout keys and sample ids, are operands in
// device memory. A compiled program (or a captured graph) therefore never changes. The fields of an op are fixed when
// the op is compiled.
//
// # Duties of the caller
//
// Only one goroutine at a time may use a Stream, and only one at a time may call Compile of a Device. All other methods
// are safe for concurrent use. The caller must close memory, kernels, programs, streams and events explicitly, because
// no finalizer closes them. The caller closes programs before kernels, and closes kernels and buffers before the
// device.
//
// # Errors
//
//   - [ErrUnsupported] from Compile: the device has no kernel for the op. The planner tries the op's decomposition.
//   - [ErrOutOfMemory] from an allocation.
//   - [ErrDevice]: the device failed (exit code 6).
//   - Other errors report a wrong argument. They name the operand, the value that was passed and the value that was
//     expected.
package device
