// Package cluster turns processes into the ranks of one run. A program combines its three independent subpackages:
//
//	discovery   determines rank, world size and the address of rank 0 from options, environment, MPI, Slurm, Kubernetes, …
//	supervisor  starts this machine's ranks, forwards signals, reports the rank that failed, ends orphan processes
//	rendezvous  connects all ranks to rank 0: membership, comparison of settings, small exchanges, reports of lost ranks
//
// In outline:
//
//	place, err := discovery.Find(options, os.Environ())
//	if place.Launch {
//		return supervisor.Run(ctx, supervisor.Options{Command: os.Args, Ranks: place.LocalWorldSize, FirstRank: place.Rank,
//			WorldSize: place.WorldSize, MasterAddr: place.MasterAddr, MasterPort: place.MasterPort, …})
//	}
//	listener, err := supervisor.Listener(os.Environ()) // the listener of rank 0, if the supervisor chose the port
//	group, err := rendezvous.Join(ctx, rendezvous.Options{Rank: place.Rank, WorldSize: place.WorldSize, LocalRank: place.LocalRank,
//		Address: place.Master(), Listener: listener, Facts: facts, Token: token})
//
// This package has no code. Its tests run whole groups of processes and kill some of them.
package cluster
