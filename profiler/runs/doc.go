// Package runs reads the folders of training runs while the runs are in progress, and after their end. It is the only
// reader for programs that show or export runs: it never talks to a training process and never writes.
//
//	folder, err := runs.OpenFolder("experiments")
//	for _, s := range folder.List() { … }           // one Summary per run; cheap
//
//	run, err := folder.Open("resnet50")
//	for run.Update(16<<20) { … }                     // reads appended records; false: all are read
//	state := run.State()
//	figures, err := run.Figures(runs.Query{From: 1, To: 1000, Points: 800})
//
// # Memory
//
// A run may have millions of steps and a thousand ranks, so records are not held in memory. A [Run] divides the steps
// into cells of equal length. Each cell has minimum, maximum, sum and count of each column, and the place of its first
// record in the rank's file. If the steps exceed the cells, pairs of cells are merged. All cells of a run together take
// at most about 16 MiB, regardless of the number of steps and ranks. Figures of a short range are read from the files,
// so they are exact. Figures of a long range have minimum and maximum of each point, so no outlier is lost.
//
// # Input
//
// Files of a run, all optional, below the run's folder:
//
//	.lock                          the process that trains
//	configs/resolved.toml          settings
//	configs/gpu_profiles.json      hardware of the ranks
//	logs/rank_<r>_metrics.json     steps
//	logs/balance.jsonl             decisions of the balancer
//	logs/events.jsonl              starts, evaluations, verdicts, checkpoints
//	logs/curves.csv                fitted step-time curves
//	results/result.json            how the run ended
//
// The key experiment.log_dir moves the folder logs. Files are untrusted: all are opened through os.Root, must be
// regular, and have a limit on the bytes that are held in memory.
package runs
