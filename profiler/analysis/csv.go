package analysis

import (
	"encoding/csv"
	"math"
	"strconv"
	"strings"
)

// SummaryCSV returns one row for each policy of each comparison. Unknown values are empty.
func (s *Study) SummaryCSV() (string, error) {
	header := []string{"comparison", "model", "dataset", "scenario", "machine", "ranks", "batch_size", "policy", "runs",
		"seeds"}
	for _, name := range []string{"throughput_samples_per_second", "speedup", "utilization_percent",
		"scaling_efficiency", "load_imbalance", "waiting", "share_of_oracle"} {
		header = append(header, name, name+"_low", name+"_high")
	}
	rows := [][]string{append(header, "target_loss", "seconds_to_target_loss")}
	for _, c := range s.Comparisons {
		for _, p := range c.Policies {
			row := []string{c.ID, c.Model, c.Dataset, c.Scenario, c.Machine, strconv.Itoa(c.Ranks),
				strconv.FormatInt(c.BatchSize, 10),
				p.Policy, strconv.Itoa(len(p.Runs)), strings.Join(p.Seeds, " ")}
			for _, e := range []Estimate{p.Throughput, p.Speedup, p.Utilization, p.Efficiency, p.Imbalance, p.Waiting,
				p.Oracle} {
				row = append(row, number(e.Value), number(e.Low), number(e.High))
			}
			rows = append(rows, append(row, number(c.TargetLoss), number(average(p.SecondsTo))))
		}
	}
	return csvText(rows)
}

// StepsCSV returns one row per step of the run.
func (r *Run) StepsCSV() (string, error) {
	header := []string{"iteration", "elapsed_seconds", "step_seconds", "samples_per_second", "loss", "load_imbalance",
		"waiting"}
	for rank := range r.Ranks {
		prefix := "rank_" + strconv.Itoa(rank) + "_"
		header = append(header, prefix+"samples", prefix+"compute_seconds", prefix+"utilization_percent")
	}
	rows := [][]string{header}
	for i := range r.Steps {
		s := &r.Steps[i]
		unequal, wait := s.imbalance()
		row := []string{strconv.FormatInt(s.Iteration, 10), number(s.Elapsed), number(s.Seconds),
			number(float64(s.Samples) / s.Seconds), number(s.Loss), number(unequal), number(wait)}
		for _, rank := range s.Ranks {
			row = append(row, strconv.FormatInt(rank.Samples, 10), number(rank.Compute), number(rank.Utilization))
		}
		rows = append(rows, row)
	}
	return csvText(rows)
}

// number formats v with 6 digits, which exceeds the precision of all values.
func number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

func csvText(rows [][]string) (string, error) {
	var b strings.Builder
	w := csv.NewWriter(&b)
	err := w.WriteAll(rows) // also flushes
	return b.String(), err
}
