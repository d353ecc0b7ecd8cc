// Package shm connects ranks through shared memory. The ranks are processes on one host.
//
// Ranks connect to a unix socket in the abstract namespace. Rank 0 sends every other rank the descriptor of one unnamed
// memory file. The socket and the file disappear with the processes, even after kill -9. These connections stay open.
// When a rank dies, its connection closes, so that all other ranks learn which rank has died. All ranks must run in one
// network namespace and as one user.
//
// # Data path
//
// A buffer passes through the shared memory block by block. Each rank reduces one part of the buffer. In each turn,
// every rank copies one block of every part that other ranks reduce into its own area of the shared memory. Then it
// reduces the block of its own part, in the order of ranks, and publishes the result. Blocks fit into the caches, so
// the buffer itself is read and written only once. In a small all-reduce, every rank computes the whole result. This
// needs one synchronization instead of two.
//
// The code is in C++ (src/, libhetero_shm.so) and runs on the communicator's own OS thread. A waiting rank sleeps on a
// futex, so other threads can use its core.
//
// # The library
//
// Package nativelib describes the search for the library. If the library cannot be used, [Available] returns the
// reason. HETERO_CPU_ISA=avx512|avx2|generic restricts the instruction set; the results are bit-equal.
//
// # Trust
//
// The package refuses processes of other users, according to the credentials that the kernel reports. If a token is
// given, it also refuses other jobs of the same user. The ranks of a group must trust each other, because they write to
// the same memory.
package shm
