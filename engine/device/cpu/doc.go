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
// A launch runs on the calling OS thread and a team of OpenMP threads, one for each core that affinity and control
// groups leave the process (device.Options.Threads overrides). The team belongs to the OS thread: a goroutine that
// runs a stream should be locked to its thread, or it may wake another team at each run.
//
// Teams wait for work by spinning, then sleep. How long is a trade: a core that spins is one that data loading cannot
// use, a core that sleeps takes microseconds to wake. Unless the environment says otherwise (OMP_WAIT_POLICY,
// GOMP_SPINCOUNT), a thread spins about as long as waking one takes. OMP_PROC_BIND binds the team's other threads, never
// the caller's: Go starts threads from that one, which would all share its core.
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
