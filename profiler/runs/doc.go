// Package runs reads the folders of training runs during and after the runs. All programs that show or export runs
// use it. It does not communicate with training processes, and never writes into the folder of a run.
//
//	folder, err := runs.OpenFolder("experiments")
//	for _, s := range folder.List(ctx) { … }           // one Summary per run; fast
//
//	run, err := folder.Open("resnet50")
//	for run.Update(16<<20) { … }                     // reads new records; false: all records are read
//	state := run.State()
//	figures, err := run.Figures(ctx, runs.Query{From: 1, To: 1000, Points: 800})
//
// # Memory
//
// A run may have millions of steps and a thousand ranks, so records are not kept in memory. A [Run] divides the steps
// into cells of equal length. A cell contains the minimum, maximum, sum and count of each column, and the file offset
// of its first record. If there are more steps than fit into the cells, pairs of cells are merged. All cells of a run
// together need at most about 16 MiB, regardless of the number of steps and ranks.
//
// The figures of a short range of steps are read from the files, so they are exact. In a long range, a point of a
// figure stands for several steps. It contains their minimum and maximum, so no outlier is lost.
//
// [Run.SaveIndex] writes an index of a long run into the folder [Folder.Indexes]. A restarted server continues from
// this index.
//
// # Input
//
// The files of a run are all optional. They are in the folder of the run:
//
//	.lock                          identity of the process that trains
//	configs/resolved.toml          settings
//	configs/gpu_profiles.json      hardware of the ranks
//	logs/rank_<r>_metrics.json     steps
//	logs/balance.jsonl             decisions of the balancer
//	logs/events.jsonl              starts, evaluations, verdicts, checkpoints
//	logs/curves.csv                fitted step-time curves
//	results/result.json            how the run ended
//
// The key experiment.log_dir in the settings replaces the folder logs by another one. Files are untrusted. All files
// are opened through os.Root and must be regular, and the number of bytes kept in memory is limited. There is one
// exception: experiment.log_dir may name any folder of this machine. From this folder, only files with the names above
// are read, also through os.Root.
package runs
