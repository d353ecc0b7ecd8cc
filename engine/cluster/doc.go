// Package cluster holds what makes processes the ranks of one run. Its three rooms know nothing of each other; a program puts
// them together:
//
//	discovery   who am I: options, environment, MPI, Slurm, Kubernetes … say which rank of how many, and where rank 0 is
//	supervisor  starts this machine's ranks, passes signals on, names the one that failed, leaves no orphans
//	rendezvous  the ranks meet at rank 0: who is there, do all agree, small exchanges, who is gone and why
//
// In outline:
//
//	place, err := discovery.Find(options, os.Environ())
//	if place.Launch {
//		return supervisor.Run(ctx, supervisor.Options{Command: os.Args, Ranks: place.LocalWorldSize, FirstRank: place.Rank,
//			WorldSize: place.WorldSize, MasterAddr: place.MasterAddr, MasterPort: place.MasterPort, …})
//	}
//	listener, err := supervisor.Listener(os.Environ()) // rank 0's, where the supervisor chose the port
//	group, err := rendezvous.Join(ctx, rendezvous.Options{Rank: place.Rank, WorldSize: place.WorldSize, LocalRank: place.LocalRank,
//		Address: place.Master(), Listener: listener, Facts: facts, Token: token})
//
// The package itself has no code; its tests run whole groups of processes and kill them.
package cluster
