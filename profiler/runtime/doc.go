// Package runtime stores the metric records of a training run: one record for each optimizer step of each rank.
//
//	w, repair, err := runtime.Open(filepath.Join(logDir, runtime.FileName(rank)), runtime.Options{Fresh: !resumed, OnFault: warn})
//	err = w.Truncate(step)  // on resume: drops records after the checkpoint
//	w.Append(&record)       // once per step, from the training goroutine; no allocation, no system call
//	err = w.Close()
//
//	records, damaged, err := runtime.ReadMetrics(path)
//
// # File
//
// logs/rank_<r>_metrics.json is one JSON array with one record per line:
//
//	[
//	{"epoch":0,"iteration":1,"loss":2.31,…},
//	{"epoch":0,"iteration":2,"loss":2.29,…}
//	]
//
// The keys are those of [telemetry.Metrics] in their order, with gpu_utilization and gpu_memory_percent before
// batch_size, then those of all other sensors of [telemetry.Declared] that have a column. docs/reports.md lists them
// with their units. On a CPU rank, gpu_utilization and gpu_memory_percent are percentages of its CPU quota and of its
// memory limit. Traffic is in bytes/s since the previous measurement, summed over the links of each kind. The network
// and RDMA traffic of a machine is in the records of its first rank.
//
// All times of a record belong to its step. Ranks report a step to rank 0 together with the gradients, before the step
// is complete. The times after that arrive with the next report. Rank 0 therefore writes the records of a step when the
// next reports have arrived, or at the next evaluation, checkpoint or end. If a rank is lost, no further report
// arrives. In the records of the last step, communication_time, communication_hidden_time and optimizer_time of ranks
// other than 0 are then those of the previous step.
//
// Training time is the sum of the step times. A step lasts from the end of the previous step to its own end, without
// evaluations, saves and other pauses ([train.Trained] lists them). If every step is recorded, step_time is at least
// the iteration_time of rank 0. If not every step is recorded, step_time is a mean, and the other times are those of
// one step. If a record contains neither step_time nor training_time, [StepTimes] estimates both from timestamps.
//
// If not every step is recorded (profile.interval), throughput is the batch_size of the recorded step divided by the
// mean step_time. It is inexact if the rank's share has changed since the previous record.
//
// A record contains no keys for traffic that is not measured, and no step_time and training_time if they are unknown.
// It contains all other keys. A line in which one of these other keys is missing counts as damaged. A value that is
// unknown, NaN or infinite is null.
//
// # Guarantees for readers
//
// The file is a valid array at any time. Each append is a single write that starts at the closing bracket and
// contains complete records and the next closing bracket. A write has at most the size of a memory page, unless a
// single record is longer. Writes occur more than once a second, so kill -9 loses less than the last second.
//
// Open repairs the file after a crash. Call Sync with each checkpoint to flush records to disk. If the disk is full,
// the array remains valid, and up to 8 MiB of records wait in memory. Later records are dropped and counted.
//
// A [Tail] reads the file while the run appends to it.
//
// # Events
//
// [EventsFile] contains one line per [Event]. An event is a process start, a run length, an evaluation, a bottleneck
// verdict or a checkpoint.
//
// # Communication
//
// [CommunicationFile] contains one line per [Communication]: the traffic of each link, and the times of the
// all-reduces, over a few steps.
//
// # Bottlenecks
//
// During the run, [Bottlenecks] analyses the step times of all ranks. Every 50 steps it reports the cause that limits
// the speed of the run, and the time that this cause costs ([account.Account]). The cause is one of these: computation,
// waiting for data, communication, a straggler, full memory, noise.
//
// # Partial writes
//
// On some file systems (ext4), readers can see half of a write. For about a microsecond per second, a reader may
// therefore see a file in which the end of the last line is missing. ReadMetrics returns all complete records and
// reports one damaged line.
package runtime
