// Package gloo connects ranks on several hosts, over Gloo's TCP connections.
//
// Every rank has a connection to every other rank. An operation begins with short messages that describe it. A mismatch
// is therefore detected before any data is sent, and a time-out can name the missing ranks. The data of a small
// operation is part of these messages. A [Shape] selects their path: each rank sends to all other ranks (direct), or
// the messages pass through a tree of ranks to rank 0 and back. In a tree, a rank sends or receives two messages on
// average. Rank 0 has more: up to one message to and from every other rank. Connect measures several shapes, and all
// ranks use the one that was fastest on rank 0. If an operation in a tree times out, the ranks determine through
// Control which ranks are late.
//
// In a larger operation, every rank then sends its data directly to every other rank. The number of bytes is the same
// as with a ring. Each rank receives one part of the buffer from all ranks and reduces it. Values are combined in the
// order of ranks on all paths. Results therefore do not depend on the shape or the size of messages. The package does
// not use Gloo's own all-reduce, which adds each part of a buffer in a different order and rounds bf16 at every hop.
// Its results would not be bit-equal to those of the other implementations.
//
// Ranks that share a host should use package shm. Gloo's event thread competes with the ranks for cores, and small
// operations then take milliseconds. On hosts that use package gloo, reserve a core for this thread.
//
// # Connecting
//
// Each rank listens on a port of [Config].Ports and publishes the port and a random key through a [Control], such as
// engine/cluster/rendezvous.Group. Of two ranks, the one with the higher number connects. Both prove that they know the
// key and the token of the run (package handshake). Only then does Gloo get the socket. Other connections to the port
// (a port scan, a health check) are counted, and closed after at most a few seconds. The package does not use Gloo's
// own way to connect. Gloo would treat the first connection to its port as the other rank, and a reset of this
// connection would end the process.
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
// Changed bytes then change gradients, or Gloo ends the process with exit code 5. With Encrypt, Gloo gets one end of a
// socket pair within the process. A relay transfers bytes between the other end and a TLS connection to the other rank.
// Changed bytes then break the connection.
//
// Until all ranks are connected, each rank listens on the address in [Config]. The established connections use the same
// port.
package gloo
