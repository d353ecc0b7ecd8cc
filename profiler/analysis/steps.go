package analysis

import (
	"cmp"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

var unknown = math.NaN()

// Step is one optimizer step of all ranks.
type Step struct {
	Iteration int64   // number of the step, from 1
	Seconds   float64 // training time of the step; see runtime.StepTimes
	Elapsed   float64 // training time of the run up to the end of this step, s
	Samples   int64   // number of samples of all ranks
	Loss      float64
	Ranks     []RankStep
}

// RankStep contains the values of one rank in a step.
type RankStep struct {
	Samples     int64
	Compute     float64 // data + forward + backward, s; without exchanges, and so without waits for other ranks
	Utilization float64 // percent; NaN if unknown
}

// align combines the records of all ranks into steps. pauses is the number of pauses between steps. partial is the
// number of steps that are left out because a rank has no record of them.
func align(records [][]runtime.Record) (steps []Step, pauses, partial int) {
	byIteration := map[int64][]runtime.Record{}
	for rank, list := range records {
		for _, record := range list {
			if byIteration[record.Iteration] == nil {
				byIteration[record.Iteration] = make([]runtime.Record, len(records))
			}
			byIteration[record.Iteration][rank] = record
		}
	}
	var whole [][]runtime.Record
	for iteration, row := range byIteration {
		if slices.ContainsFunc(row, func(r runtime.Record) bool { return r.Iteration != iteration }) {
			partial++
			continue
		}
		whole = append(whole, row)
	}
	slices.SortFunc(whole, func(a, b []runtime.Record) int { return cmp.Compare(a[0].Iteration, b[0].Iteration) })
	var times runtime.StepTimes
	for _, row := range whole {
		step := Step{Iteration: row[0].Iteration, Loss: row[0].Values[telemetry.Loss]}
		for _, record := range row {
			step.Seconds = max(step.Seconds, record.IterationTime().Seconds())
			step.Samples += record.BatchSize
			step.Ranks = append(step.Ranks,
				RankStep{record.BatchSize, record.Own().Seconds(), record.Telemetry[telemetry.Utilization]})
		}
		span := times.Next(&row[0], step.Seconds)
		step.Seconds, step.Elapsed = span.Seconds, span.Elapsed
		if span.Paused {
			pauses++
		}
		steps = append(steps, step)
	}
	return steps, pauses, partial
}

// imbalance returns (max-min)/max of the compute times of the ranks with samples. The result waiting is the fraction of
// their total time in which these ranks wait for the slowest rank. Both results are 0…1, or NaN for fewer than two
// ranks.
func (s *Step) imbalance() (imbalance, waiting float64) {
	least, most, sum, n := math.Inf(1), 0.0, 0.0, 0.0
	for _, rank := range s.Ranks {
		if rank.Samples > 0 {
			least, most, sum, n = min(least, rank.Compute), max(most, rank.Compute), sum+rank.Compute, n+1
		}
	}
	if n < 2 || most <= 0 {
		return unknown, unknown
	}
	return (most - least) / most, 1 - sum/(n*most)
}

// WarmUp returns the number of warm-up steps at the start of a run. total is the number of all steps. If the parameter
// set is not negative, WarmUp returns set. Otherwise it returns a fifth of total, but at least 30.
func WarmUp(total int64, set int64) int64 {
	if set >= 0 {
		return set
	}
	return max((total+4)/5, 30)
}

// steady returns the steps after the warm-up. The parameter set is that of WarmUp.
func (r *Run) steady(set int64) []Step {
	first := WarmUp(r.Steps[len(r.Steps)-1].Iteration, set)
	i := slices.IndexFunc(r.Steps, func(s Step) bool { return s.Iteration > first })
	if i < 0 {
		return nil
	}
	return r.Steps[i:]
}
