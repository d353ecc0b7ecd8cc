// Package gloo connects ranks on several hosts, over Gloo's TCP connections.
//
// Every rank has a connection to every other rank. At the start of an operation each rank sends each other rank a short
// message that describes the operation. A mismatch is therefore found before any data moves, and a time-out can name
// the missing ranks. Then every rank sends its data directly to every other rank. The number of bytes is the same as
// with a ring. Each rank reduces one part of the buffer: it receives this part from all ranks, and combines the values
// in the order of ranks. The package does not use Gloo's own all-reduce, which adds each part of a buffer in a
// different order and rounds bf16 at every hop. Its bits would differ from those of the other implementations.
//
// Ranks that share a host should use package shm: Gloo's event thread competes with the ranks for cores, and small
// operations then take milliseconds. On hosts that use package gloo, reserve a core for this thread.
//
// # Connecting
//
// Each rank listens on a port and publishes the port and two random keys through a [Control], such as
// engine/cluster/rendezvous.Group. Of two ranks, the one with the higher number connects and sends the first key; the
// other replies with the second. Only then does Gloo get the socket. Other connections to the port (a port scan, a
// health check) are closed after a few seconds at most, and counted. The package does not use Gloo's own way to
// connect. Gloo would treat the first connection to its port as the other rank, and a reset of this connection would
// end the process.
//
// Gloo notices the death of a rank only while it communicates with that rank. Therefore the communicator also fails
// when Control breaks, with a PeerError whose cause is Control's error. When an operation fails, the rank notifies the
// other ranks through Control, which aborts the whole group. If Connect fails, the caller must abort Control.
//
// # The library
//
// libhetero_gloo.so is built if Gloo is installed (libgloo-dev on Debian). Package nativelib describes the search for
// it. If the library cannot be used, [Available] returns the reason.
//
// # Trust
//
// Gloo's connections are not encrypted: a machine between two ranks can read and forge gradients. Use them only in a
// network that contains only the hosts of the job. The keys are secret only if Control is. Until all ranks are
// connected, each rank listens on the address in [Config], on a port that the system chooses.
package gloo
