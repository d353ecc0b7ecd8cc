// Package runtime keeps the metric records of a training run: one record for each optimizer step of each rank.
//
//	w, repair, err := runtime.Open(filepath.Join(logDir, runtime.FileName(rank)), runtime.Options{Fresh: !resumed, OnFault: warn})
//	err = w.Truncate(step)  // on resume: drop what lies beyond the checkpoint
//	w.Append(&record)       // once a step, from the training goroutine: no allocation, no system call
//	err = w.Close()
//
//	records, damaged, err := runtime.ReadMetrics(path)
//
// # File
//
// logs/rank_<r>_metrics.json is one JSON array, one record a line:
//
//	[
//	{"epoch":0,"iteration":1,"loss":2.31,…},
//	{"epoch":0,"iteration":2,"loss":2.29,…}
//	]
//
//	key                        unit, meaning
//	epoch                      from 0
//	iteration                  optimizer steps done, this one included
//	loss                       global mean of the step
//	throughput                 samples/s of this rank: batch_size / iteration_time
//	iteration_time             s; exactly the sum of the five parts
//	data_loading_time          s; waiting for data
//	forward_time               s
//	backward_time              s
//	communication_time         s; exposed: what the rank waited for gradients
//	optimizer_time             s
//	communication_hidden_time  s; overlapped with computing, not part of iteration_time
//	exchange_time              s; what the passes stood still for exchanges of batch normalisation with other ranks, within forward and backward
//	communication_bytes        of gradients that were summed over ranks, in the type that they had on the wire
//	communication_buckets      all-reduces in which they were
//	gpu_utilization            percent; on a CPU rank the share of its CPU quota that the process uses
//	gpu_memory_percent         percent; on a CPU rank the process's share of the memory it may use
//	batch_size                 samples of this rank in this step
//	timestamp                  s since 1970-01-01 UTC, at the end of the step
//	rank
//	accuracy                   top-1 on the training batch, fraction 0…1
//	learning_rate
//	grad_norm                  global norm before clipping
//	loss_scale                 of mixed precision
//	skipped                    true where the update was left out because the gradient was not finite
//	temperature                degrees Celsius
//	power                      W
//
// Ranks report a step to rank 0 together with its gradients, when some of it is still to come. So in the files of ranks other than 0
// communication_time, communication_hidden_time and optimizer_time are those of the step before (0 in the first record of a
// process); iteration_time and throughput follow from them.
//
// Every record has every key. What is not known, not a number or infinite is null.
//
// # What readers may rely on
//
// The file is a valid array at any time: each append is one write that begins at the closing bracket, carries whole records
// and the next closing bracket, and is no longer than a page of memory unless a record is. Records are handed to the
// system more than once a second, so that kill -9 loses less than the last second; Open repairs whatever a crash left.
// Sync, to be called with each checkpoint, flushes them to the disk. Where the disk is full the array stays valid, records
// wait in memory (up to 8 MiB, later ones are dropped and counted) and are written when there is room again.
//
// # Bottlenecks
//
// [Bottlenecks] takes the same times, of all ranks, while the run goes on, and says every 50 steps what limits it and what
// that costs: waiting for data, computing, communication, a straggler, or full memory.
//
// # Half-written files
//
// On file systems that let a reader see half of a write (ext4) a reader can, for a microsecond a second, meet the file
// without its last line's end. ReadMetrics then returns all complete records and reports one damaged line.
package runtime
