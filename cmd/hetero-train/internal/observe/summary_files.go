package observe

import (
	"encoding/json"
	"io"
	"path/filepath"

	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/profiler/analysis"
	"github.com/hetero-train/hetero-train/profiler/analysis/figures"
)

// Names of files in the folder of log files.
const (
	SummaryFile = "summary.json"
	LatencyFile = "latency_histogram.png"
)

// WriteSummary writes summary.json and latency_histogram.png to the folder logs. It never leaves an incomplete file.
func WriteSummary(logs string, s *analysis.Summary) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	err = experiment.Replace(filepath.Join(logs, SummaryFile), func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
	if err != nil {
		return err
	}
	return experiment.Replace(filepath.Join(logs, LatencyFile), func(w io.Writer) error {
		return figures.Latency(w, s)
	})
}
