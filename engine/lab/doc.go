// Package lab is a testbed. It makes the ranks on one machine unequal, and applies the conditions of package weather
// to a process. A single machine can thus simulate a heterogeneous cluster.
//
//	setup, err := lab.Find(os.LookupEnv)                 // the setup for this rank, made by scripts/lab.sh
//	a, err := lab.Open(lab.Options{Setup: setup, Weather: w, Rank: rank, Device: dev, …})
//	a.Before(step)                                       // before each optimizer step
//	a.Close()                                            // restores the original conditions
//
// # Real and simulated conditions
//
//	speed       a CPU quota of the rank's control group (real); without one, idle time of the device (simulated)
//	neighbour   a process that keeps a CPU busy, in the rank's control group and on its CPUs (real)
//	link        a token bucket on a network interface that only this rank uses (real)
//
// For this process, [Applier.Means] states of each condition whether it is real or simulated, or why it has no effect.
// The caller should show this text, which does not change during a run. If a condition later cannot be applied, the
// Applier calls Options.Warn, once for each change of conditions.
//
// # Environment
//
//	HETERO_LAB_CGROUP     folder of a CPU control group, version 1 or 2, that holds only this rank and has a quota
//	HETERO_LAB_CPUS       the quota of that group in CPUs; the rank starts this number of threads
//	HETERO_LAB_SLOWDOWN   constant slowdown factor of the device (simulated), 1 to 1000
//	HETERO_LAB_INTERFACE  network interface of the rank's own network namespace
//	HETERO_LAB_LINK       constant limit of that interface as for tc, such as 100mbit; no limit if unset
//
// # Cleanup
//
// Close undoes all changes. Noisy neighbours read from a pipe that this process holds. They therefore exit with this
// process, even after a crash. If this process is killed, its quota and token bucket remain until scripts/lab.sh
// removes the control group and the namespace.
package lab
