// Package analysis reads finished training runs, compares balancing policies on them, and says what it found as text.
//
//	runs, err := analysis.Read("experiments/benchmarks")   // what cannot be used is in runs.Skipped, with reasons
//	study, err := analysis.Compare(runs, analysis.Options{WarmUpSteps: -1, Replicates: 2000, Confidence: 0.95, Seed: 1})
//	err = study.Print(os.Stdout)
//	csv, err := study.SummaryCSV()
//	text := study.Report(figures, overview)                 // Markdown; drawings are made by package figures
//
// # What is read
//
// Of each run: results/result.json (how it ended), configs/resolved.toml (its settings), logs/rank_<r>_metrics.json (each step of each
// rank), logs/balance.jsonl (decisions of the balancer, absent where there are none) and benchmark.json (what scripts/run_benchmark.sh
// says of it: scenario, machine, which scenario measures each rank alone; absent for other runs). Runs that have not ended well, and
// those that are too short, are skipped with a reason; damaged lines are left out and counted.
//
// # What is compared
//
// Runs of one [Comparison] have the same settings in every key but the policy and the seed, and the same scenario and machine. Scenarios
// whose name begins with "solo-" are runs of one rank alone: they are what scaling efficiency is measured against.
//
// # A single run
//
//	summary, err := analysis.Summarize("experiments/resnet50", "")   // finished, killed or running: what its records say
//
// # Parts
//
// Reading: run.go, settings.go. A single run: summary.go, collect.go. Pure numbers: steps.go, bootstrap.go, compare.go, converge.go, expected.go. Text: text.go, report.go, csv.go.
// The same runs and options give the same text, digit by digit. Definitions of all values and of the intervals are in the report itself
// ([Study.Report], under "Method").
package analysis
