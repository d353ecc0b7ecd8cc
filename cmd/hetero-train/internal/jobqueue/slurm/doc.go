// Package slurm reads the queue and the nodes of a Slurm cluster, and restricts pending jobs to chosen nodes. It
// changes only jobs that opt in.
//
// It runs `squeue --json` and `scontrol show nodes --json`. Slurm 22.05 and older have no JSON in scontrol; the package
// then runs `sinfo --json`. Numbers may be plain (data parser v0.0.38 and older) or objects with set, infinite and
// number; states may be strings or lists.
//
// A job opts in by its comment: `sbatch --hold --comment "hetero-train: kind=ResNet-50 (batch size 64); steps=10000"`.
// The comment may state its kind in the speed table and its number of steps. Slurm itself starts jobs as soon as they
// fit, so jobs should be held by their owner. The package places no job that an administrator holds.
//
// [Client.Apply] runs `scontrol update JobId=N ReqNodeList=A,B`, and `scontrol release N` for a held job. Slurm permits
// this for pending jobs only, and reports an error for other jobs. The user of the program must have permission to
// change the job.
package slurm
