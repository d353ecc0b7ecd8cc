// Package hosts connects ranks of several hosts: those of one host through one kind of communicator (package shm), the
// first ranks of the hosts through another (package gloo). What crosses the network does so once a host, not once a rank.
//
// # How an operation goes
//
// It has three stages, an operation each of an inner communicator, joined by events:
//
//	Within   the ranks of a host          reduce, gather, or bring the root's bytes to the host's first rank
//	Between  the first ranks of the hosts the same among hosts
//	Spread   the ranks of a host          a broadcast of the result by the first rank
//
// Nobody waits in a thread of this package: each inner communicator runs its own operations in the order of Enqueue. So while
// Between is busy with one operation Within already does the next. That takes two communicators a host: in a single one
// the broadcast, which waits for the network, would keep the next reduction waiting. A host of one rank has only Between.
// An operation on memory that an earlier one still uses begins when that has ended, as if there were no stages.
//
// # Order of sums
//
// The values of a host are reduced in the order in which [Options.Hosts] lists its ranks, then the hosts' in the order of hosts:
// (x0 + x1) + (x2 + x3). All ranks receive the same bits, and every run with the same Hosts gives them again. They are
// not the bits of a communicator that takes rank after rank. A sum of bf16 is rounded within the host and once more
// between hosts: who needs one rounding sends f32.
//
// # Which hosts
//
// All-reduce, broadcast and barrier take any division into hosts. All-gather and reduce-scatter need one in which Hosts, read
// through, is 0, 1, 2, …: the parts of a host then lie side by side. Enqueue refuses them otherwise.
//
// # Failure
//
// The first failure of an inner communicator ends all three here, and through them those of all ranks. Errors name ranks
// of the whole: [collective.PeerError], [collective.TimeoutError] and [collective.MismatchError] are translated.
// Inner communicators may carry no more than text to another rank, so the failure travels as a line that is read again there.
// A failure while nothing runs is noticed by looking, every 20 ms.
//
// Time-outs belong to the inner communicators. A rank that never comes is to be blamed by those of its host, before the
// others lose patience with their first rank, who is not at fault: [Timeouts] tells how long each should wait.
//
// A difference between the ranks' operations is found by the inner communicators. Ranks of one host that disagree only in
// the counts of other hosts are not: each host goes by what its first rank has.
package hosts
