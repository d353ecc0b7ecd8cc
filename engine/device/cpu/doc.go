// Package cpu is the device that all cores of the machine make together: convolutions and linear layers on oneDNN,
// convolutions of small images and everything else on vector kernels of our own, in src/.
//
// # The library
//
// The kernels live in libhetero_cpu.so, which [Driver].Open loads. It is looked for in $HETERO_LIB_DIR if that is set,
// else in build/lib, lib and ../lib/hetero-train beside the program. Without it Open answers device.ErrUnavailable.
// HETERO_CPU_ISA=avx512|avx2|generic makes it use less than the CPU has, for tests; with another value Open answers
// device.ErrUnavailable.
//
// # Threads
//
// A launch runs on the calling OS thread and a team of threads, one for each core that affinity and control groups leave the process.
// OMP_NUM_THREADS lowers that number; device.Options.Threads overrides both. The team belongs to the OS thread: a goroutine that runs a
// stream should be locked to its thread, or it may start another team at each run.
//
// The threads are the library's own (src/team.h), for its kernels and for oneDNN, which asks for them by the functions of GCC's OpenMP
// library. The division of work depends on the size of the team alone, and so do results. On a CPU that other processes use, threads
// that run take over the parts of threads that wait for a CPU, and a team that gets less than half of a CPU for each thread tries
// half as many.
//
// Threads wait for work by spinning, then sleep. How long is a trade: a core that spins is one that data loading cannot use, a core that
// sleeps takes microseconds to wake. A thread spins about as long as waking one takes, unless OMP_WAIT_POLICY or GOMP_SPINCOUNT says
// otherwise. Threads are not bound to cores: OMP_PROC_BIND and OMP_PLACES have no effect.
//
// Where the library was built with another compiler than GCC, or oneDNN for another OpenMP library, threads are those of the OpenMP
// libraries. Results are the same, but on busy CPUs the threads wait for one another.
//
// # Slowdown
//
// [device.Slowable] makes the device up to 1,000 times slower: a launch is followed by idle time, so that events come later too and
// communication hides behind backward as it does on a slow device. Copies are not slowed down. Sleeps last a millisecond and more;
// what is owed in between carries over. While the factor is 1 a run reads it once and does nothing else.
//
// # Layouts
//
// Images are plain (NCHW), nhwc, nChw8c or nChw16c; weights in whatever oneDNN's implementation reads best. The layout of
// a weight gradient, in which a parameter's state is kept, does not depend on the batch size.
package cpu
