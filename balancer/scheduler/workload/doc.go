// Package workload creates clusters, jobs and speeds for the scheduler.
//
//	setup := workload.Default()                    // the default cluster, kinds of jobs and their speeds
//	jobs, err := workload.Generate(setup, workload.Arrivals{Jobs: 200, Load: 0.8, Seed: 1})
//	result, err := simulate.Run(policy, setup.Cluster, jobs, setup.Speeds, simulate.Options{})
//
// [Table] implements [scheduler.Speeds] from measured speeds. It has the form of Gavel's measurements: steps per second
// for each kind of job, type of GPU and number of GPUs, for jobs alone and in pairs. With step-time curves of a kind,
// [Table.Mixed] predicts the speed on GPUs of several types with the solver of package divide.
//
// [Generate] is deterministic: equal arguments give equal jobs.
package workload
