// Package slurm reads the jobs and the nodes of a Slurm cluster, and restricts pending jobs to chosen nodes. It changes
// only jobs that opt in.
//
// It runs `squeue --json` and `scontrol show nodes --json`. Slurm 22.05 and older have no JSON in scontrol; the package
// then runs `sinfo --json`. A number may be plain (data parser v0.0.38 and older) or an object with set, infinite and
// number. A state may be a string or a list.
//
// A job opts in with its comment: `sbatch --hold --comment "hetero-train: kind=ResNet-50 (batch size 64);
// steps=10000"`. The comment may state the kind of the job in the speed table and its number of steps. Owners should
// hold their jobs, because otherwise Slurm starts a job as soon as it fits. The package places no job that an
// administrator holds.
//
// [Client.Apply] runs `scontrol update JobId=N ReqNodeList=A,B`, and `scontrol release N` for a held job. Slurm permits
// this for pending jobs only, and reports an error for other jobs. The user of the program must have permission to
// change the job.
package slurm
