// Package analysis reads finished training runs, compares balancing policies on them, and reports the results as text.
//
//	runs, err := analysis.Read("experiments/benchmarks")   // runs.Skipped lists unusable folders with reasons
//	study, err := analysis.Compare(runs, analysis.Options{WarmUpSteps: -1, Replicates: 2000, Confidence: 0.95, Seed: 1})
//	err = study.Print(os.Stdout)
//	csv, err := study.SummaryCSV()
//	text := study.Report(figures, overview)                 // Markdown; package figures draws the figures
//
// # Input
//
// Files of each run:
//
//	results/result.json            how the run ended
//	configs/resolved.toml          its settings
//	logs/rank_<r>_metrics.json     each step of each rank
//	logs/balance.jsonl             decisions of the balancer; optional
//	benchmark.json                 written by scripts/run_benchmark.sh: scenario, machine, solo scenario of each rank; optional
//
// Runs that did not end well, and runs that are too short, are skipped with a reason. Damaged lines are skipped and
// counted.
//
// # Comparisons
//
// Runs of one [Comparison] have the same scenario, machine and settings, except for the policy and the seed. Scenarios
// whose name begins with "solo-" are runs of one rank alone: scaling efficiency is relative to them.
//
// # A single run
//
//	summary, err := analysis.Summarize("experiments/resnet50", "")   // of a finished, killed or running run
//
// # Parts
//
// Reading: run.go, settings.go. A single run: summary.go, collect.go. Pure numbers: steps.go, bootstrap.go, compare.go,
// converge.go, expected.go. Text: text.go, report.go, csv.go. The same runs and options give exactly the same text. The
// report defines all values and intervals ([Study.Report], under "Method").
//
// # Errors
//
// Read returns an error only if the root cannot be listed. Compare returns an error for invalid options.
package analysis
