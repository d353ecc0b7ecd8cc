// Package lab is a testbed. It makes the ranks on one machine unequal, and applies the conditions of package weather to
// a process. With it, a single machine can stand in for a heterogeneous cluster.
//
//	place, err := lab.Find(os.LookupEnv)                 // the part of the testbed that scripts/lab.sh has set up for this rank
//	a, err := lab.Open(lab.Options{Place: place, Weather: w, Rank: rank, Device: dev, …})
//	a.Before(step)                                       // before each optimizer step
//	a.Close()                                            // restores the original conditions
//
// # Real and simulated conditions
//
//	speed       a CPU quota of the rank's control group (real), else idle time of the device (simulated)
//	neighbour   a process that keeps a CPU busy, in the rank's group and on its CPUs (real)
//	link        a token bucket on the network interface that belongs to this rank alone (real)
//
// [Applier.Means] returns, for each condition, whether it is real or simulated for this process, or why it has no
// effect. The caller should show this text. It never changes during a run. If a condition cannot be applied later,
// Options.Warn is called, once per change of conditions.
//
// # Environment
//
//	HETERO_LAB_CGROUP     folder of a CPU control group, version 1 or 2, that holds only this rank and has a quota
//	HETERO_LAB_CPUS       the quota of that group in CPUs; the rank starts as many threads
//	HETERO_LAB_SLOWDOWN   constant slowdown factor of the device (simulated), 1 to 1000
//	HETERO_LAB_INTERFACE  network interface of the rank's own network namespace
//	HETERO_LAB_LINK       constant limit of that interface as for tc, such as 100mbit; no limit if unset
//
// # Cleanup
//
// Close undoes all changes. Noisy neighbours exit with the rank's process, even after a crash, because they read from a
// pipe that this process holds. If the process is killed, its quota and token bucket remain until scripts/lab.sh
// removes the control group and the namespace.
package lab
