// Package hosts connects ranks of several hosts. The ranks of one host use one kind of communicator (package shm), the
// first ranks of the hosts another (package gloo). Data crosses the network once per host, not once per rank.
//
// # Stages of an operation
//
// An operation has three stages. Each is an operation of an inner communicator, and events join them:
//
//	Within   the ranks of a host           reduce, gather, or copy the root's bytes to the host's first rank
//	Between  the first ranks of the hosts  the same among hosts
//	Spread   the ranks of a host           the first rank broadcasts the result
//
// No thread of this package waits: each inner communicator runs its own operations in the order of Enqueue. While
// Between runs one operation, Within already runs the next. This needs two communicators per host: in a single one, a
// broadcast that waits for the network would delay the next reduction. A host of one rank has only Between. If an
// operation uses memory of an earlier operation, it starts after that one has ended.
//
// # Order of sums
//
// The values of a host are reduced in the order in which [Options.Hosts] lists its ranks, then those of the hosts in
// the order of hosts: (x0 + x1) + (x2 + x3). All ranks receive the same bits, and so does every run with the same
// Hosts. A communicator that adds rank after rank gives other bits. A sum of bf16 is rounded within the host and once
// more between hosts; use f32 for a single rounding.
//
// # Permitted hosts
//
// All-reduce, broadcast and barrier accept any division of the ranks into hosts. All-gather and reduce-scatter need
// contiguous parts of a host: the concatenation of Hosts must be 0, 1, 2, …. Otherwise Enqueue returns an error.
//
// # Failure
//
// The first failure of an inner communicator ends all three on this rank, and thereby those of all ranks.
// [collective.PeerError], [collective.TimeoutError] and [collective.MismatchError] are translated, so that they name
// ranks of the whole group. Inner communicators may send only text to another rank, so a failure is sent as a line that
// the receiver parses. While no operation runs, failures are detected by polling every 20 ms.
//
// Inner communicators have their own time-outs. If a rank never arrives, the ranks of its host must report it before
// the other hosts blame that host's first rank. [Timeouts] returns suitable limits.
//
// The inner communicators detect differences between the ranks' operations, with one exception: ranks of one host that
// differ only in the counts of other hosts. Each host uses the counts of its first rank.
package hosts
