package runs

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// Totals contains figures of the whole run, over all of its processes. Unknown numbers are null.
type Totals struct {
	Seconds          experiment.Number `json:"training_seconds"` // training time up to the newest record, s
	StepSeconds      experiment.Number `json:"step_seconds"`     // mean step time, s
	SamplesPerSecond experiment.Number `json:"samples_per_second"`
	// Ended means that the run has ended with a known result. Before that, SamplesPerSecond is null.
	Ended bool `json:"ended"`
}

// Speed contains figures of the newest steps of all ranks. Unknown numbers are null.
type Speed struct {
	// Decision is the step of a decision. The figures of Speed and RankSpeed are means over its window, as on the
	// console. If there is no decision, Decision is 0, and the figures belong to a single step: View.Common.
	Decision         int64             `json:"decision"`
	Samples          experiment.Number `json:"samples"` // samples of the global batch
	StepSeconds      experiment.Number `json:"step_seconds"`
	SamplesPerSecond experiment.Number `json:"samples_per_second"`
}

// RankSpeed contains figures of the newest steps of a rank; see Speed. Unknown numbers are null.
type RankSpeed struct {
	Share       experiment.Number `json:"share"`        // samples of a step
	BusySeconds experiment.Number `json:"busy_seconds"` // time of the rank's own work in a step
	// time in a step in which the rank waits for other ranks; without a decision, it includes the transfer time
	WaitedSeconds    experiment.Number `json:"waited_seconds"`
	SamplesPerSecond experiment.Number `json:"samples_per_second"`
}

// windowed reports whether two conditions hold: the decision contains the times of its window for all ranks, and all
// ranks have records. The size of the global batch is computed from these records.
func windowed(d *Decision, records []*runtime.Record) bool {
	return d != nil && d.Seconds != nil && *d.Seconds > 0 && len(records) > 0 && len(d.Ranks) >= len(records) &&
		len(d.Shares) >= len(records) &&
		!slices.ContainsFunc(records, func(m *runtime.Record) bool { return m == nil || m.BatchSize <= 0 })
}

// clusterSpeed returns the figures of all ranks together. They belong to the window of a decision or, without a
// decision, to the step of the records.
func clusterSpeed(d *Decision, records []*runtime.Record) Speed {
	unknown := experiment.Number(math.NaN())
	s := Speed{StepSeconds: unknown}
	for _, m := range records {
		if m == nil {
			s.Samples, s.SamplesPerSecond = unknown, unknown
			break
		}
		s.Samples += experiment.Number(m.BatchSize)
		s.SamplesPerSecond += experiment.Number(m.Throughput())
	}
	if len(records) == 0 {
		s.Samples, s.SamplesPerSecond = unknown, unknown
	} else if m := records[0]; m != nil {
		s.StepSeconds = experiment.Number(m.Took().Seconds())
	}
	if d != nil {
		s.Decision, s.StepSeconds = d.Step, experiment.Number(*d.Seconds)
		s.SamplesPerSecond = s.Samples / s.StepSeconds
	}
	return s
}

// speedOf returns the figures of a rank. They belong to the window of a decision or, without a decision, to the step of
// the rank's record. batch is the number of samples of all ranks in a step.
func speedOf(d *Decision, rank int, batch float64, m *runtime.Record) RankSpeed {
	unknown := experiment.Number(math.NaN())
	s := RankSpeed{unknown, unknown, unknown, unknown}
	switch {
	case d != nil:
		total := 0
		for _, n := range d.Shares { // shares of a micro-batch
			total += n
		}
		s.Share = experiment.Number(float64(d.Shares[rank]) * batch / float64(max(total, 1)))
		if k := d.Ranks[rank]; k.Seconds != nil {
			s.BusySeconds = experiment.Number(*k.Seconds)
		}
		if k := d.Ranks[rank]; k.Waited != nil {
			s.WaitedSeconds = experiment.Number(*k.Waited)
		}
	case m != nil:
		s.Share, s.BusySeconds, s.WaitedSeconds = experiment.Number(m.BatchSize), experiment.Number(m.Own().Seconds()),
			experiment.Number(m.Communication.Seconds())
	}
	if s.BusySeconds > 0 {
		s.SamplesPerSecond = s.Share / s.BusySeconds
	}
	return s
}

// totals returns the figures of the whole run.
func (r *Run) totals() Totals {
	unknown := experiment.Number(math.NaN())
	t := Totals{Seconds: unknown, StepSeconds: unknown, SamplesPerSecond: unknown}
	if len(r.ranks) > 0 && r.ranks[0].found {
		if last := &r.ranks[0].last; last.TrainingTime > 0 {
			t.Seconds = experiment.Number(last.TrainingTime.Seconds())
			untimed := int64(0) // steps of another run, from whose checkpoint this one has started
			if starts := r.happened.starts.list; len(starts) > 0 {
				untimed = starts[0].Step
			}
			t.StepSeconds = t.Seconds / experiment.Number(last.Iteration-untimed)
		}
	}
	if r.evidence.ended() {
		result := r.evidence.result
		t.Ended, t.SamplesPerSecond = true, result.SamplesPerSecond
	}
	return t
}

// mostBack is the largest number of candidate steps that common checks.
const mostBack = 8

// common returns the newest step of which all ranks have a record, and these records by rank. active is the number of
// ranks of the newest process. common ignores ranks without records, and ranks of earlier processes. Files of running
// ranks end at different steps, because the ranks write their records at different times. It returns no records and
// step 0 if there is no such step.
func (r *Run) common(active int) (records []*runtime.Record, step int64) {
	none := make([]*runtime.Record, len(r.ranks))
	records = slices.Clone(none)
	ranks := r.ranks[:min(len(r.ranks), active)]
	for _, k := range ranks {
		if k.found && (step == 0 || k.last.Iteration < step) {
			step = k.last.Iteration
		}
	}
	for range mostBack {
		if step == 0 {
			break
		}
		found := step
		for i, k := range ranks {
			if !k.found {
				continue
			}
			records[i] = r.recordAt(i, step)
			if records[i] == nil {
				return none, 0
			}
			found = min(found, records[i].Iteration)
		}
		if found == step {
			return records, step
		}
		step = found
	}
	return none, 0
}

// recordAt returns the newest record of a rank up to a step, or nil if the files contain none near this step.
func (r *Run) recordAt(rank int, step int64) *runtime.Record {
	k := r.ranks[rank]
	if k.last.Iteration <= step {
		last := k.last
		return &last
	}
	offset, found := k.grid.offsetOf(step)
	if !found {
		return nil
	}
	var newest *runtime.Record
	err := runtime.ReadFrom(r.logs, k.tail.Name(), offset, func(m *runtime.Record) bool {
		if m.Iteration > step {
			return false
		}
		if m.Iteration >= 1 {
			copied := *m
			newest = &copied
		}
		return true
	})
	if err != nil {
		return nil // the next Update reports the error
	}
	return newest
}
