// Package manager describes the queue and the nodes of a cluster that a workload manager runs, such as Slurm or
// Kubernetes, and proposes placements with a policy of package scheduler.
//
// Packages slurm and kubernetes read a [Snapshot] and apply a [Placement]. [Propose] is pure.
//
// A snapshot contains only facts that the manager reports. A job whose constraints this package cannot represent is not
// placed; Job.Skip states why. The speed of a job is known only if its kind is; otherwise all GPUs count as equally fast
// for it, and the proposal says so.
package manager
