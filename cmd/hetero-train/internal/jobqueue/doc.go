// Package jobqueue describes the jobs and the nodes of a cluster with a queue system such as Slurm or Kubernetes. It
// proposes placements with a policy of package scheduler.
//
// The packages slurm and kubernetes read a [Snapshot] and apply a [Placement]. [Propose] is a pure function.
//
// A snapshot contains only facts that the queue system reports. The package does not place a job whose constraints it
// cannot represent; Job.Skip gives the reason. The speed of a job is known only if its kind is known. Otherwise the
// package assumes that all GPUs are equally fast for the job, and states this in the proposal.
package jobqueue
