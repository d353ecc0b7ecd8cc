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
// Ranks say where they listen through a [Control], which engine/cluster/rendezvous.Group fits: Gloo's own exchange of addresses
// neither tells whom it waits for nor ends when that one is gone. Nor does Gloo notice the death of a rank that it is not
// talking to: when Control breaks so does the communicator, with a PeerError whose cause is Control's error. A failure of
// an operation is told to the others through it too, so it aborts the group; of one to connect the caller tells them.
//
// # The library
//
// libhetero_gloo.so is built where Gloo is installed (libgloo-dev on Debian), and looked for as package nativelib says.
// [Available] tells why it cannot be used.
//
// # Trust
//
// Gloo's connections are neither authenticated nor encrypted: whoever reaches a rank's port can disturb the run, or read
// and forge gradients. They belong into a network that only the job's hosts are on. What listens is the
// address that [Config] names, a port that the system picks, for as long as the communicator lives.
package gloo
