// Package hosts connects the ranks of several hosts. It combines two kinds of communicators: one connects the ranks
// within a host (package shm), the other connects the first ranks of the hosts (package gloo). Data crosses the network
// once per host, not once per rank.
//
// # Stages of an operation
//
// An operation has three stages. Each stage is an operation of an inner communicator. Events connect the stages:
//
//	Within   the ranks of a host           reduce or gather, or copy the root's bytes to the host's first rank
//	Between  the first ranks of the hosts  reduce, gather or copy between hosts
//	Spread   the ranks of a host           the first rank broadcasts the result
//
// No thread of this package waits: each inner communicator runs its own operations in the order of Enqueue. While
// Between runs one operation, Within already runs the next one. Within and Spread therefore use two communicators. In a
// single communicator, a broadcast that waits for the network would delay the next reduction. A host with one rank has
// only Between. An operation that uses the memory of an earlier operation starts only after the end of that operation.
//
// # Order of sums
//
// First the values of each host are reduced, in the order in which [Options.Hosts] lists its ranks. Then the results of
// the hosts are reduced, in the order of hosts: (x0 + x1) + (x2 + x3). The results are bit-equal on all ranks, and in
// every run with the same Hosts. They are not bit-equal to those of a communicator that adds rank after rank. A sum of
// bf16 is rounded within the host and once more between hosts; use f32 for a single rounding.
//
// # Permitted hosts
//
// All-reduce, broadcast and barrier accept any division of the ranks into hosts. All-gather and reduce-scatter require
// that the ranks of each host are consecutive: the concatenation of Hosts must be 0, 1, 2, …. Otherwise Enqueue returns
// an error.
//
// # Failure
//
// The first failure of an inner communicator ends all three inner communicators of this rank. The communicators of all
// other ranks then also end. The package translates [collective.PeerError], [collective.TimeoutError] and
// [collective.MismatchError], so that they name ranks of the whole group. Some inner communicators transfer only the
// text of an error to other ranks, not its type. The package therefore encodes a failure as a line of text that the
// receiver parses. While no operation runs, the package polls for failures every 20 ms.
//
// Inner communicators have their own time-outs. If a rank never arrives, the other ranks of its host must report it
// first. Only later may the other hosts report the first rank of that host as missing. [Timeouts] returns suitable
// limits.
//
// The inner communicators detect differences between the ranks' operations, with one exception: the ranks of one host
// may pass different counts for the ranks of other hosts. This causes no error, and the counts of the host's first rank
// apply.
package hosts
