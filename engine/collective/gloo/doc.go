// Package gloo connects ranks on several hosts, over the TCP connections of the library Gloo.
//
// Every rank has a connection to every other rank. An operation begins with short messages that describe it. A mismatch
// is therefore detected before any data is sent, and a time-out can name the missing ranks. The data of a small
// operation is part of these messages. A [Shape] selects the path of the messages: each rank sends to all other ranks
// (direct), or messages pass through a tree of ranks to rank 0 and back. In a tree, there are two messages per rank on
// average. Rank 0 has more: up to one message to and from every other rank. Connect measures several shapes, and all
// ranks use the one that was fastest on rank 0. If an operation in a tree times out, the ranks determine through
// Control which ranks are late.
//
// In a larger operation, the data then flows directly between all ranks. Each rank receives one part of the buffer from
// all other ranks and reduces it. The number of bytes is the same as with a ring. Values are combined in the order of
// ranks on all paths. Results therefore do not depend on the shape or the size of messages. The package does not use
// Gloo's own all-reduce, because its results would not be bit-equal to those of the other implementations: it adds each
// part of a buffer in a different order and rounds bf16 at every hop.
//
// Ranks that share a host should use package shm. With package gloo, Gloo's event thread would compete with the ranks
// for cores, and small operations would take milliseconds. On hosts that use package gloo, reserve a core for this
// thread.
//
// # Connecting
//
// Each rank listens on a port of [Config].Ports and publishes the port and a random key through a [Control], such as
// engine/cluster/rendezvous.Group. Of two ranks, the one with the higher number connects. Both prove that they know the
// key and the token of the run (package handshake). Only then does Gloo get the socket. Other connections to the port,
// such as those of a port scan or a health check, are counted. They are closed after at most a few seconds. The package
// does not use Gloo's own functions for connecting. Gloo would accept the first connection to its port as the other
// rank, and a reset of this connection would end the process.
//
// Gloo detects the death of a rank only during communication with this rank. Therefore the communicator also fails if
// Control breaks, with a PeerError whose cause is the error of Control. If an operation fails, the rank notifies the
// other ranks through Control, which aborts the whole group. If Connect fails, the caller must abort Control.
//
// # The library
//
// libhetero_gloo.so is built if Gloo is installed (libgloo-dev on Debian). Package nativelib describes the search for
// it. If the library cannot be used, [Available] returns the reason.
//
// # Encryption
//
// Without Config.Encrypt, Gloo's connections are not encrypted, and a man in the middle can read and forge gradients.
// If bytes are changed, gradients change, or Gloo ends the process with exit code 5. With Encrypt, Gloo gets one end of
// a socket pair within the process. A relay transfers bytes between the other end and a TLS connection to the other
// rank. If bytes are changed, the connection breaks.
//
// Each rank listens on the address in [Config] until all ranks are connected. The established connections use the same
// port.
package gloo
