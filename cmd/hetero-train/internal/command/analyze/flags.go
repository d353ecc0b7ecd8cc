package analyze

import "github.com/hetero-train/hetero-train/profiler/analysis"

// analyzeFlags are the flags of command analyze.
type analyzeFlags struct {
	input, output string
	options       analysis.Options
	logDir        string
	compare, json bool
}
