// Package shm connects ranks that are processes of one host, through shared memory.
//
// Ranks meet at a unix socket in the abstract namespace. Rank 0 sends every other rank the descriptor of one unnamed
// memory file. Socket and file vanish with the processes, also after kill -9. The sockets stay open: when a rank dies,
// its socket closes, and all ranks learn which rank it was. All ranks must share a network namespace and a user.
//
// # Data path
//
// A buffer passes through the shared memory block by block. In each turn every rank copies a block of each other rank's
// part into its stage, reduces the block of its own part in the order of ranks, and publishes the result. Blocks fit
// the caches, and the buffer itself is read and written once. In small all-reduces every rank computes the whole
// result, which takes one synchronization instead of two. The work is done in C++ (src/, libhetero_shm.so), on the
// communicator's own OS thread. A rank that waits sleeps on a futex and leaves its core to others.
//
// # The library
//
// Package nativelib describes the search for the library. [Available] returns the reason if it cannot be used.
// HETERO_CPU_ISA=avx512|avx2|generic restricts the instruction set; the bits are the same.
//
// # Trust
//
// Processes of other users are refused by the credentials that the kernel reports. A token, if given, refuses other
// jobs of the same user. The ranks of a group must trust each other, because they write to the same memory.
package shm
