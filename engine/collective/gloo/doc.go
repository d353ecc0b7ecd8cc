// Package gloo connects ranks on several hosts, over Gloo's TCP connections.
//
// Every rank has a connection to every other rank. An operation begins with short messages that describe it. A mismatch
// is therefore found before any data moves, and a time-out can name the missing ranks. The data of a small operation
// travels in the same messages. Their path has a [Shape]: each rank sends to all others, or the messages go up a tree
// to rank 0 and down again. A tree has two messages for each rank in the mean; rank 0 has more, up to a message to and
// from every other rank if all are below it. Connect measures several shapes, and all ranks take the fastest one of
// rank 0. The ranks that are late in a tree are determined through Control, and only after a time-out.
//
// In a larger operation every rank then sends its data directly to every other rank. The number of bytes is the same as
// with a ring. Each rank reduces one part of the buffer: it receives this part from all ranks. Values are combined in
// the order of ranks on all paths, so neither the shape nor the size of a group's messages changes a bit. The package
// does not use Gloo's own all-reduce, which adds each part of a buffer in a different order and rounds bf16 at every
// hop. Its bits would differ from those of the other implementations.
//
// Ranks that share a host should use package shm: Gloo's event thread competes with the ranks for cores, and small
// operations then take milliseconds. On hosts that use package gloo, reserve a core for this thread.
//
// # Connecting
//
// Each rank listens on a port of [Config].Ports and publishes the port and a random key through a [Control], such as
// engine/cluster/rendezvous.Group. Of two ranks, the one with the higher number connects. Both prove that they know the
// key and the token of the run (package handshake). Only then does Gloo get the socket. Other connections to the port
// (a port scan, a health check) are closed after a few seconds at most, and counted. The package does not use Gloo's
// own way to connect. Gloo would treat the first connection to its port as the other rank, and a reset of this
// connection would end the process.
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
// # Encryption
//
// Gloo's connections are not encrypted, unless Config.Encrypt is set: a machine between two ranks can read and forge
// gradients. With Encrypt, Gloo gets one end of a pair of sockets within the process, and a relay passes bytes between
// the other end and a TLS connection to the other rank. Changed bytes then break the connection. Without Encrypt,
// changed bytes change gradients, or Gloo ends the process with exit code 5.
//
// Until all ranks are connected, each rank listens on the address in [Config]. The established connections keep the
// port.
package gloo
