// Package cpu is the device that consists of all cores of the machine. oneDNN computes convolutions and linear layers;
// vector kernels in src/ compute convolutions of small images and all other ops.
//
// # The library
//
// The kernels are in libhetero_cpu.so, which [Driver].Open loads. Open searches $HETERO_LIB_DIR if it is set, else
// build/lib, lib and ../lib/hetero-train relative to the program's folder. If the library is missing, Open returns
// device.ErrUnavailable. HETERO_CPU_ISA=avx512|avx2|generic limits the instruction set, for tests; for other values
// Open returns device.ErrUnavailable.
//
// # Threads
//
// A launch runs on the calling OS thread and a team of worker threads, one for each core that affinity and control
// groups allow. OMP_NUM_THREADS lowers that number; device.Options.Threads overrides both. The team belongs to the OS
// thread: lock a goroutine that runs a stream to its thread, or each run may start another team.
//
// The worker pool is part of the library (src/team.h). It runs the library's kernels and oneDNN's parallel regions,
// which call the functions of GCC's OpenMP library. The division of work depends only on the size of the team, and so
// do results. If other processes use a CPU, running threads take over the parts of threads that wait for a CPU. A team
// that gets less than half of a CPU per thread tries half as many threads.
//
// Idle threads spin, then sleep. The duration is a trade-off: a spinning core is not available to data loading, and a
// sleeping core takes microseconds to wake. A thread spins about as long as waking a thread takes, unless
// OMP_WAIT_POLICY or GOMP_SPINCOUNT is set. Threads are not bound to cores: OMP_PROC_BIND and OMP_PLACES have no
// effect.
//
// If the library was built with a compiler other than GCC, or oneDNN for another OpenMP library, the OpenMP libraries
// provide the threads. Results are the same, but on busy CPUs the threads wait for each other.
//
// # Slowdown
//
// [device.Slowable] makes the device up to 1,000 times slower. Idle time follows each launch, so events are late, too,
// and communication overlaps the backward pass as on a slow device. Copies are not slowed down. Sleeps last at least a
// millisecond; shorter idle times accumulate. While the factor is 1, a run reads it once and has no other cost.
//
// # Layouts
//
// Images are plain (NCHW), nhwc, nChw8c or nChw16c. Weights have the layout that oneDNN's implementation reads fastest.
// The layout of a weight gradient, which a parameter's state uses, does not depend on the batch size.
package cpu
