// Package shm connects ranks that are processes of one host, through shared memory.
//
// Ranks meet at a unix socket in the abstract namespace, where rank 0 hands every other rank one piece of memory that has
// no name. Both vanish with the processes, also after kill -9. The sockets stay open: when a rank dies its
// socket closes, and everybody learns who it was. All ranks must share a network namespace and a user.
//
// # How data moves
//
// A buffer goes through the shared memory block by block: in a turn every rank stages a block of each other rank's part
// of the buffer, reduces the block of its own part in the order of ranks, and hands out the result. Blocks fit the
// caches, the buffer itself is read and written once. Small all-reduces are reduced by every rank for itself: one
// meeting instead of two. The work is in C++ (src/, libhetero_shm.so), on the communicator's own OS thread. Whoever
// waits sleeps on a futex and leaves its core to others.
//
// # The library
//
// It is looked for as package nativelib says. [Available] tells why it cannot be used.
// HETERO_CPU_ISA=avx512|avx2|generic makes it use less than the CPU has; the bits are the same.
//
// # Trust
//
// Other users' processes are turned away by what the kernel says about them, and a token, if one is given, keeps out
// other jobs of the same user. Ranks trust each other: they write to the same memory.
package shm
