// Package lab is a testbed: it makes ranks unequal on one machine, and applies the conditions of package weather to a
// process. It allows measurements of a heterogeneous cluster without a cluster.
//
//	place, err := lab.Find(os.LookupEnv)                 // what scripts/lab.sh has set up for this rank
//	a, err := lab.Open(lab.Options{Place: place, Weather: w, Rank: rank, Device: dev, …})
//	a.Before(step)                                       // before each optimizer step
//	a.Close()                                            // restores the original conditions
//
// # Real and simulated conditions
//
//	speed       a CPU quota of the rank's control group (real), else the device idles (simulated)
//	neighbour   a process that keeps a CPU busy, in the rank's group and on its CPUs (real)
//	link        a token bucket on the network interface that belongs to this rank alone (real)
//
// [Applier.Means] returns the kind for this process, or why a condition has no effect here; the caller shows it. The
// kinds never change during a run. Options.Warn receives later failures, once for each change of conditions.
//
// # Environment
//
//	HETERO_LAB_CGROUP     folder of a CPU control group, version 1 or 2, that holds only this rank and has a quota
//	HETERO_LAB_CPUS       that quota in CPUs; the rank starts as many threads
//	HETERO_LAB_SLOWDOWN   constant slowdown factor of the device (simulated), 1 to 1000
//	HETERO_LAB_INTERFACE  network interface of the rank's own network namespace
//	HETERO_LAB_LINK       constant limit of that interface as for tc, such as 100mbit; no limit if unset
//
// # Cleanup
//
// Close undoes all changes. Neighbours exit with the process, even after a crash, because they read from a pipe that it
// holds. If a process is killed, its quota and token bucket remain until scripts/lab.sh removes the control group and
// the namespace.
package lab
