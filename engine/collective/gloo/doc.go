// Package gloo connects ranks on several hosts, over Gloo's TCP connections.
//
// Every rank is connected to every other. An operation begins with a short message from each to each, which says what
// the rank is about to do: so a mismatch is found before any data moves, and a time-out knows who has not come. Then
// everybody sends directly to everybody, as many bytes as on a ring; whoever reduces has the values of all ranks and
// takes them in their order. Gloo's own all-reduce is not used: it adds in another order for each part of a buffer and
// rounds bf16 at every hop, so its bits would not be those of the other implementations.
//
// Ranks that share a host should use package shm: Gloo's event thread competes with the ranks for the cores, and small
// operations then take milliseconds. Between hosts that thread wants room: count it when cores are divided.
//
// # How ranks find each other
//
// Each rank listens on a port and publishes the port and two random keys through a [Control]: engine/cluster/rendezvous.Group is one. Of two ranks
// the one with the higher number connects and sends the first key, the other one answers with the second. Only then does Gloo get the socket. Other connections
// to the port (a port scan, a health check) are closed, at the latest after a few seconds, and counted. Gloo's own way of connecting is not used: it takes
// the first connection to its port for the other rank, and a reset of that connection ends the process.
//
// Gloo does not notice the death of a rank that it is not talking to: when Control breaks so does the communicator, with a PeerError whose cause is
// Control's error. A failure of an operation is told to the others through it too, so it aborts the group; of one to connect the caller tells them.
//
// # The library
//
// libhetero_gloo.so is built where Gloo is installed (libgloo-dev on Debian), and looked for as package nativelib says.
// [Available] tells why it cannot be used.
//
// # Trust
//
// Gloo's connections are not encrypted: a machine between two ranks can read and forge gradients. They belong into a network
// that only the job's hosts are on. The keys are as secret as Control keeps them. What listens is the address that [Config] names, a port that the
// system picks, until all ranks are connected.
package gloo
