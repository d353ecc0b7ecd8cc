// Package scheduler decides which job runs on which GPUs of a cluster with different types of GPUs.
//
// Like package balancer, it consists of pure functions over numbers: it reads no clock, no file and no network. Command
// `hetero-train schedule` reads files and prints results.
//
// # Model
//
// A [Cluster] has machines with CPU cores, host memory, a network link and GPUs of several types. A [Workload] is a
// list of jobs in the order of their arrival. A [Job] needs a fixed number of GPUs, which start and stop together (a
// gang), and CPU cores and host memory for each GPU. Its work is a number of steps. [Speeds] gives the steps per second
// of a kind of job on GPUs of each type, alone or together with another job on the same GPUs.
//
// A [State] is the cluster at one moment: jobs that wait, jobs that run, free resources. A [Policy] reads the state and
// returns an [Action]: start a job on GPUs, stop a job, or wait for the next event. Package simulate applies actions
// and advances time.
//
// # Units
//
// Times are seconds, memory is bytes, bandwidth is bytes per second, and fractions are between 0 and 1. NaN is an
// unknown number.
//
// # Policies
//
// [New] returns a policy by its name, and [Names] lists the names. Policy dqn belongs to the program
// (cmd/hetero-train/internal/dqn).
//
//	fcfs      jobs in the order of arrival; the first job that does not fit blocks the others
//	easy      as fcfs, on the fastest free GPUs; a later job may start first if it does not delay the first one (EASY backfilling)
//	static    each kind of job has one type of GPU, and waits for it
//	rule      best fit by speed and priority; waiting time raises the priority
//	srf       the job with the shortest remaining time first, on its fastest free GPUs
//	srpt      as srf; it also stops running jobs for a job whose remaining time is shorter
//	las       the job with the least service first, in two queues; it stops jobs of the second queue (2D-LAS of Tiresias)
//	allox     the assignment of jobs to types and places in their order with the least sum of completion times (AlloX)
//	maxmin    equal effective speed for all jobs, relative to an equal part of the cluster (max-min fairness)
//	sia       in rounds of 60 s, the allocation with the largest sum of values of normalised goodputs (Sia, for rigid jobs)
//	gang      plans ahead, predicts the speed of mixed sets of GPUs with the solver of package divide, and starts the job that
//	          finishes first (mixed sets only on clusters of up to 8 types of GPUs)
//	dqn       a network that was trained on the simulator
//
// # Errors
//
// [Cluster.Check] and [Workload.Check] report all invalid numbers in one error. Each fault has a name, the number, and
// the valid range. A job that no GPUs of the cluster can hold is an [*UnplaceableError] ([Holds]). Policy maxmin
// refuses jobs that run for more than 1e9 s, policy sia those above 1.5e8 s, and both refuse jobs that arrive after
// 1e15 s ([*TooLongError]).
package scheduler
