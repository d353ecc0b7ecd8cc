// Package gloo connects ranks on several hosts, over Gloo's TCP connections.
//
// Every rank has a connection to every other rank. At the start of an operation each rank sends each other rank a short
// message that describes the operation. A mismatch is therefore found before any data moves, and a time-out can name
// the missing ranks. Then every rank sends its data directly to every other rank: as many bytes as on a ring. The rank
// that reduces a part has the values of all ranks, and combines them in the order of ranks. Gloo's own all-reduce is
// not used. It adds each part of a buffer in a different order and rounds bf16 at every hop, so its bits would differ
// from those of the other implementations.
//
// Ranks that share a host should use package shm: Gloo's event thread competes with the ranks for cores, and small
// operations then take milliseconds. Reserve a core for this thread on hosts that use gloo.
//
// # Connecting
//
// Each rank listens on a port and publishes the port and two random keys through a [Control], such as
// engine/cluster/rendezvous.Group. Of two ranks, the one with the higher number connects and sends the first key; the
// other replies with the second. Only then is the socket given to Gloo. Other connections to the port (a port scan, a
// health check) are closed after a few seconds at most, and counted. Gloo's own way to connect is not used, because it
// accepts the first connection to its port as the other rank, and a reset of this connection ends the process.
//
// Gloo notices the death of a rank only while it communicates with that rank. Therefore the communicator also fails
// when Control breaks, with a PeerError whose cause is Control's error. A failed operation notifies the other ranks
// through Control, and so aborts the whole group. If Connect fails, the caller must abort Control.
//
// # The library
//
// libhetero_gloo.so is built if Gloo is installed (libgloo-dev on Debian). Package nativelib describes the search for
// it. [Available] returns the reason if it cannot be used.
//
// # Trust
//
// Gloo's connections are not encrypted: a machine between two ranks can read and forge gradients. Use them only in a
// network that contains only the hosts of the job. The keys are as secret as Control keeps them. Until all ranks are
// connected, each rank listens on the address in [Config], on a port that the system chooses.
package gloo
