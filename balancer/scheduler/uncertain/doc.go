// Package uncertain hides the exact work of jobs from scheduling policies.
//
//	policy = uncertain.Hide(policy, uncertain.Options{Seed: 1, Sigma: 0.5})
//	result, err := simulate.Run(policy, cluster, workload, speeds, simulate.Options{})
//
// The simulator knows the work of each job. The policy sees a copy of the workload and of the state, in which an
// estimate replaces the work.
//
// # Stated estimates
//
// The stated estimate of a job is, in this order of preference:
//
//   - [scheduler.Job.Estimate], if the job has one
//   - otherwise its work times exp(sigma*z + r*p). z is a standard normal number that depends only on the seed and on
//     the index of the job. sigma is [scheduler.Job.Error] if the job has one, otherwise [Options.Sigma]. p is the
//     position of the job in the list, from 0 to 1. r is normal with deviation [Options.Drift], and depends on the seed
//     and on the kind of the job: it models wear and software updates, after which old estimates are wrong by the same
//     factor.
//
// The median of the error is 1: half of the estimates are too small.
//
// # Jobs that exceed their estimate
//
// If a job has done as much work as its estimate, the estimate doubles, and doubles again each time that the job
// reaches it. A policy therefore never sees a running job without remaining work. The doubled estimate stays if the job
// loses work because a GPU fails.
//
// # Estimates from history
//
// With [Options.History], the estimate of a job is computed at its arrival from the finished jobs of its kind. In
// logarithms, it is the mean of two numbers, weighted by the inverse of their variances:
//
//   - the stated estimate, plus the mean of log(work / stated estimate): this corrects a drift
//   - the mean of log(work / GPUs), plus the logarithm of the job's GPUs: jobs of a kind have similar work
//
// Both means are running means, in which each finished job reduces the weight of earlier jobs of its kind by 1/30. A
// kind with fewer than 5 finished jobs has no history: its jobs keep their stated estimates.
//
// Estimates from history depend on the policy, because the means contain only finished jobs. With a policy that prefers
// short jobs, they contain more jobs that are short or were estimated too long, and are too small.
// [Options.Running] adds jobs that have not finished as censored values: the work that they have done is a lower limit.
//
// The mean work of a kind reduces the error of estimates, but makes the completion times of policy srpt longer.
// Unfinished jobs as censored values do not change this (docs/benchmarks/scheduling.md).
//
// A policy that reads the work of all jobs at Reset sees the stated estimates there: static, rule, and a bound of
// waiting times with a factor of the running time ([scheduler.Limit]). When a job has finished, its work is known to
// the policy.
package uncertain
