// Package simulate runs scheduling policies on a simulated cluster.
//
//	result, err := simulate.Run(policy, cluster, workload, speeds, simulate.Options{})
//
// A caller that makes its own decisions, such as a learner, advances a [Sim] step by step:
//
//	sim, err := simulate.New(cluster, workload, speeds, simulate.Options{})
//	for !sim.Done() {
//		err := sim.Apply(action)        // any number of starts and stops at the current time
//		more := sim.Next(math.Inf(1))   // to the next event
//	}
//	result := sim.Result("name")
//
// # Model
//
// Time goes from event to event; there are no time steps. Events are the arrival of a job, the end of a job, the end of
// loading or saving a checkpoint, and a [Change] of the availability of a GPU. Events with equal times are handled in
// this order: jobs that run (in the order of their start), changes, arrivals. Then the policy decides.
//
//   - GPUs: at most [scheduler.MaxSharing] jobs use a GPU. Two jobs share GPUs only if their sets of GPUs are equal.
//     While both have the GPUs, both have the speeds of the pair, even while one of them loads or saves.
//   - CPU cores and host memory are hard limits of each machine.
//   - Network: each job that spans machines and computes sends [scheduler.Job.Network] bytes/s from each of its GPUs.
//     If the jobs of a machine want to send more than its link can transfer, each of these jobs gets the same fraction
//     of its request. A job has the speed of its slowest machine.
//   - Stop: a job that computes keeps its GPUs for the time to save ([scheduler.Kind.Save]). A job that still loads has
//     nothing to save, and frees its GPUs immediately.
//   - Start of a job that was stopped or failed: the job loads its checkpoint ([scheduler.Kind.Load]) before it
//     computes.
//   - Change: if a GPU becomes unavailable, its jobs fail. A failed job loses the work since its last checkpoint. Jobs
//     that compute write a checkpoint every [Options].Checkpoint seconds, at no cost. Failed GPUs, removed GPUs and
//     GPUs that are added later are all changes.
//
// The simulator reads no clock and no random numbers. Equal inputs give equal results.
//
// # Errors
//
// [New] returns faults of the inputs, and an [*scheduler.UnplaceableError] for a job that no GPUs can hold. [Sim.Apply]
// returns an [*ActionError] for an impossible action, and then changes nothing. If no further event can occur, [Run]
// returns a [*NeverError] if jobs run. If no job runs, and the policy does not start the remaining jobs, Run returns a
// [*StalledError].
package simulate
