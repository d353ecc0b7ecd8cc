// Package lab makes ranks unequal on one machine and brings a process into the conditions of package weather: the figures of a
// heterogeneous cluster, without one.
//
//	place, err := lab.Find(os.LookupEnv)                 // what scripts/lab.sh has set up for this rank
//	a, err := lab.Open(lab.Options{Place: place, Weather: w, Rank: rank, Device: dev, …})
//	a.Before(step)                                       // before each optimizer step
//	a.Close()                                            // everything as it was
//
// # What is real and what is simulated
//
//	speed       a CPU quota of the rank's own control group (real), else the device idles (simulated)
//	neighbour   a process of its own that keeps a CPU busy, in the rank's group and on its CPUs (real)
//	link        a token bucket on the network interface that belongs to this rank alone (real)
//
// [Applier.Means] says which it is for this process, or why a part has no effect here; the caller shows it. Nothing falls back
// to something else in mid-run: what fails then is told to Options.Warn, once for each change.
//
// # Environment
//
//	HETERO_LAB_CGROUP     folder of a CPU control group, version 1 or 2, that holds this rank alone and has a quota
//	HETERO_LAB_CPUS       that quota in CPUs, so that a rank makes as many threads
//	HETERO_LAB_SLOWDOWN   how many times slower the device is made all the time (simulated), 1 to 1000
//	HETERO_LAB_INTERFACE  network interface of the rank's own network namespace
//	HETERO_LAB_LINK       what tc limits that interface to all the time, as 100mbit; none where it is not set
//
// # Ends
//
// Close undoes everything. Neighbours end with the process however it ends: they read from a pipe that it holds. A quota and a
// token bucket that a killed process leaves behind go with the control group and the namespace, which scripts/lab.sh removes.
package lab
