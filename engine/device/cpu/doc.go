// Package cpu is the device for CPUs; it uses all cores of the machine. oneDNN computes most convolutions and linear
// layers. Vector kernels in src/ compute all other ops, and convolutions of small images.
//
// On arm64, the device does not use oneDNN. It computes convolutions and linear layers as matrix products with NEON
// (src/gemm_arm64.h), or in bf16 with bfmmla if the CPU has this instruction. Images and weights then have plain
// layouts.
//
// # The library
//
// The kernels are in libhetero_cpu.so, which [Driver].Open loads. Open searches $HETERO_LIB_DIR if it is set, else
// build/lib, lib and ../lib/hetero-train relative to the program's folder. If the library is missing, or the CPU lacks
// an instruction of level x86-64-v2, Open returns device.ErrUnavailable.
//
// Environment variables change the library's behaviour, for tests and benchmarks. If a value is invalid, Open returns
// device.ErrUnavailable.
//
//	HETERO_CPU_ISA      avx512_bf16, avx512, avx2 or generic: limit of the instruction set; avx512_bf16 excludes AMX; on
//	                    arm64, generic excludes bfmmla
//	                    amx: no limit; kernels are chosen as on a CPU with AMX, even if the CPU lacks AMX
//	HETERO_CPU_KERNELS  kernels to use without timing; see below
//	HETERO_CPU_TIMES    times of kernels in microseconds, "tiles=5,onednn=3", in place of measured times
//
// # Choice of kernels
//
// On CPUs with AVX-512 BF16, some ops have two kernels for bf16:
//
//   - Linear layers, the loss over a vocabulary and their gradients: kernels of this library ("tiles") and of oneDNN
//     ("onednn").
//   - Attention: a kernel on blocks in bf16 ("tiles"), and one that multiplies in f32 ("rows").
//   - Convolutions, only on CPUs with AMX: kernels on AMX tile registers ("tiles") and those of oneDNN ("onednn").
//
// The first process of a machine that compiles such an op times both kernels. It stores the faster one in the folder
// hetero-train/choices of the user's cache. All later processes use the stored choice. If a kernel fails while it is
// timed, it is not used, and the choice is not stored.
//
// If this folder cannot be written and locked, the device does not time kernels. On CPUs with AMX, it then uses oneDNN
// for all ops except attention and convolutions. On other CPUs, it uses oneDNN for linear layers with at most 64 rows
// and for the gradients of their input. For all other ops, it uses tiles. [device.Noting] reports failed kernels, and
// reports if choices are not stored.
//
// HETERO_CPU_KERNELS selects kernels without timing. It is a list of the names above, separated by commas. For each op,
// the device uses the first name in the list that has a kernel for the op. A name that is never used because of earlier
// names is an error. The list may also contain `guess`: ops for which no name has a kernel then use the kernel that is
// used without timing. Choices that are made with HETERO_CPU_TIMES are stored in a separate file. Runs with measured
// times do not read this file.
//
// # Threads
//
// A launch runs on the calling OS thread and a team of worker threads, one for each core that affinity and control
// groups allow. OMP_NUM_THREADS lowers the number of threads; device.Options.Threads overrides it. The team belongs to
// the OS thread. Call runtime.LockOSThread in a goroutine that runs a stream. Otherwise, each call of Stream.Run may be
// on another OS thread and create another team.
//
// The teams are part of the library (src/team.h), and run the library's kernels. They also run oneDNN's parallel
// regions, because the library provides the functions of GCC's OpenMP library that oneDNN calls. The division of work,
// and therefore the results, depend only on the size of the team. If other processes occupy CPUs, running threads take
// over the work of threads that wait for a CPU. If a team gets less than half a CPU per thread, it tries half as many
// threads.
//
// Idle threads spin, then sleep. The time for which they spin is a trade-off: a spinning thread occupies a core that
// data loading could use, but a sleeping thread takes microseconds to wake up. A thread spins for about the time that
// waking up takes, unless OMP_WAIT_POLICY or GOMP_SPINCOUNT is set. Threads are not bound to cores: OMP_PROC_BIND and
// OMP_PLACES have no effect.
//
// If the library was not built with GCC, or oneDNN for another OpenMP library, the OpenMP libraries of the compiler and
// of oneDNN provide the threads. The results are the same, but on busy CPUs the threads of a team wait for each other.
//
// # Slowdown
//
// [device.Slowable] makes the device up to 1,000 times slower. The device adds idle time after each launch. Events
// therefore also complete later, and communication overlaps the backward pass as on a slow device. Copies are not
// slowed down. A sleep lasts at least a millisecond; shorter idle times are accumulated until they reach a millisecond.
// While the factor is 1, the only cost is one read of the factor per run.
//
// # Layouts
//
// The layout of images is plain (NCHW), nhwc, nChw8c or nChw16c. Weights have the layout that oneDNN's implementation
// reads fastest. The optimizer state of a parameter has the layout of the weight gradient. This layout does not depend
// on the batch size.
package cpu
