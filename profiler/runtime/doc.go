// Package runtime stores the metric records of a training run: one record for each optimizer step of each rank.
//
//	w, repair, err := runtime.Open(filepath.Join(logDir, runtime.FileName(rank)), runtime.Options{Fresh: !resumed, OnFault: warn})
//	err = w.Truncate(step)  // on resume: drops records after the checkpoint
//	w.Append(&record)       // once per step, from the training goroutine: no allocation, no system call
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
//	key                        unit, meaning
//	epoch                      from 0
//	iteration                  optimizer steps done, including this one
//	loss                       global mean of the step
//	throughput                 samples/s of this rank: batch_size / iteration_time
//	iteration_time             s; exactly the sum of the five parts
//	data_loading_time          s; waiting for data
//	forward_time               s
//	backward_time              s
//	communication_time         s; exposed: the rank's wait for gradients
//	optimizer_time             s
//	communication_hidden_time  s; overlapped with computing, not part of iteration_time
//	exchange_time              s; passes blocked on exchanges of batch normalisation with other ranks; part of forward and backward
//	communication_bytes        of gradients that were summed over ranks, in the type on the wire
//	communication_buckets      number of all-reduces of these gradients
//	gpu_utilization            percent; on a CPU rank the part of its CPU quota in use
//	gpu_memory_percent         percent; on a CPU rank the part of its memory limit in use
//	batch_size                 samples of this rank in this step
//	timestamp                  s since 1970-01-01 UTC, at the end of the step
//	rank
//	accuracy                   top-1 on the training batch, fraction 0…1
//	learning_rate
//	grad_norm                  global norm before clipping
//	loss_scale                 of mixed precision
//	skipped                    true if the update was skipped because the gradient was not finite
//	temperature                degrees Celsius
//	power                      W
//
// Ranks report a step to rank 0 together with its gradients, before the step is complete. In the files of ranks other
// than 0, communication_time, communication_hidden_time and optimizer_time are therefore those of the previous step (0
// in the first record of a process); iteration_time and throughput follow from them.
//
// Every record has every key. A value that is unknown, NaN or infinite is null.
//
// # Guarantees for readers
//
// The file is a valid array at any time. Each append is one write that starts at the closing bracket and contains whole
// records and the next closing bracket. It is at most a page of memory long, unless one record is longer. Records are
// written more than once a second, so that kill -9 loses less than the last second. Open repairs the file after a
// crash. Sync, to be called with each checkpoint, flushes records to the disk. If the disk is full, the array stays
// valid. Records then wait in memory (up to 8 MiB; later ones are dropped and counted) and are written when there is
// space again.
//
// # Bottlenecks
//
// [Bottlenecks] uses the same times of all ranks during the run. Every 50 steps it reports the limit of the run's speed
// and its cost: waiting for data, computing, communication, a straggler, or full memory.
//
// # Partial writes
//
// Some file systems (ext4) show readers half of a write. For about a microsecond per second a reader can then see the
// file without the end of its last line. ReadMetrics returns all complete records and reports one damaged line.
package runtime
