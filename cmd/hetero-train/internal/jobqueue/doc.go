// Package jobqueue describes the queue and the nodes of a cluster that a queue system runs, such as Slurm or
// Kubernetes, and proposes placements with a policy of package scheduler.
//
// Packages slurm and kubernetes read a [Snapshot] and apply a [Placement]. [Propose] is pure.
//
// A snapshot contains only facts that the queue system reports. The package does not place a job whose constraints it
// cannot represent; Job.Skip gives the reason. The speed of a job is known only if its kind is known. Otherwise all
// GPUs count as equally fast for the job, and the proposal states this.
package jobqueue
