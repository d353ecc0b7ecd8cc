// Package analysis reads finished training runs, compares their balancing policies, and reports the results as text.
//
//	runs, err := analysis.Read("experiments/benchmarks")   // runs.Skipped lists unusable folders with reasons
//	study, err := analysis.Compare(runs, analysis.Options{WarmUpSteps: -1, Replicates: 2000, Confidence: 0.95, Seed: 1})
//	err = study.Print(os.Stdout)
//	csv, err := study.SummaryCSV()
//	text := study.Report(figures, overview)                 // Markdown; package figures draws the figures
//
// # Input
//
// These files of each run are read:
//
//	results/result.json            how the run ended
//	configs/resolved.toml          the settings of the run
//	logs/rank_<r>_metrics.json     each step of each rank
//	logs/balance.jsonl             decisions of the balancer; optional
//	benchmark.json                 scenario, machine, solo scenario of each rank, from scripts/run_benchmark.sh; optional
//
// Unsuccessful runs and runs that are too short are skipped, and the reason is reported. Damaged lines are skipped
// and counted.
//
// # Comparisons
//
// The runs of a [Comparison] have the same scenario, machine and settings, except for the policy and the seed. In a
// scenario whose name starts with "solo-", a single rank runs alone. Scaling efficiency is relative to the throughput
// of these runs.
//
// # A single run
//
//	summary, err := analysis.Summarize("experiments/resnet50", "") // the run may be finished, killed or running
//
// # Runs side by side
//
//	trial, err := analysis.ReadTrial("experiments/resnet50")         // also a run in a file store of MLflow
//	s, err := analysis.CompareTrials([]*analysis.Trial{trial, other})
//
// A [Trial] contains the curves and figures of one run. A [SideBySide] contains the trials of a comparison, and the
// settings that differ between them.
//
// # Parts
//
// The files run.go and settings.go read runs. summary.go and collect.go summarise a single run. steps.go, bootstrap.go,
// compare.go, converge.go and expected.go compute numbers. text.go, report.go and csv.go write text. Equal runs and
// options give exactly equal text. The section "Method" of [Study.Report] defines all values and intervals. trial.go
// and trial_mlflow.go read runs for sidebyside.go.
//
// # Errors
//
// Read returns an error only if the root folder cannot be listed. Compare returns an error for invalid options.
// CompareTrials returns an [ErrNotComparable] for runs without a common measure.
package analysis
