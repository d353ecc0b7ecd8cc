// Package slurm reads the queue and the nodes of a Slurm cluster and restricts pending jobs to nodes.
//
// It runs `squeue --json` and `scontrol show nodes --json`. Slurm 22.05 and older have no JSON in scontrol; the package
// then runs `sinfo --json`. Numbers may be plain (data parser v0.0.38 and older) or objects with set, infinite and
// number; states may be strings or lists.
//
// [Client.Apply] runs `scontrol update JobId=N ReqNodeList=A,B`. Slurm permits this for pending jobs only, and reports
// an error for other jobs. The user of the program needs the right to change the job.
//
// The comment of a job (`sbatch --comment "hetero-train: kind=ResNet-50 (batch size 64); steps=10000"`) states its kind
// in the speed table and its number of steps.
package slurm
