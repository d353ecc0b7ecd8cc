package train

import (
	"time"

	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// RankStep is one rank's part of a step, as the rank reports it to the other ranks. The reports directly follow the
// gradients, so the ranks need no second synchronization. At that time, three values of the step are not known yet:
// Times.Communication, Hidden and Optimizer. These values are therefore those of the rank's previous step, and 0 in
// its first step. All other values are of this step. In a StepRecord, the entry of the observing rank itself contains
// only values of this step. Options.Timed gets the times of one step on all ranks.
type RankStep struct {
	replica.Sums
	Times replica.StepTimes
	// Other is the time between the last step and this step, without evaluation and saving. Times does not include it.
	Other   time.Duration
	Buckets int
	Bytes   int64 // bytes of gradients that were summed over ranks

	Telemetry telemetry.Sample // other ranks receive values rounded to float32
	Links     LinkReport

	Replaced int // number of samples that could not be read, see data.Skip

	// Positions is replica.StepResult.Positions, which is equal on all ranks. Reports do not contain it.
	Positions float64
}

// Compute returns the time that the rank needs for its own work in a step: from the end of the previous sum over
// ranks to its last gradient. The other ranks wait during this time. Waits within the passes, for batch normalisation
// over all samples, are not included.
func (s RankStep) Compute() time.Duration {
	t := s.Times
	return t.Optimizer + s.Other + t.Data + t.Forward + t.Backward - t.Exchanges
}

// total adds up the replica.Sums of all ranks, in the order of ranks.
func total(ranks []RankStep) (sum replica.Sums) {
	for _, rank := range ranks {
		sum.Add(rank.Sums)
	}
	return sum
}

// LinksPerStep is the number of links in a LinkReport. A rank with more links reports them in turns, which keeps the
// reports small. This is sufficient, because traffic is measured less often than most ranks complete a step.
const LinksPerStep = 2

// LinkReport is the traffic of some links of a rank.
type LinkReport struct {
	First   int // number of the first link; the others follow it
	Traffic [LinksPerStep]telemetry.Traffic
}

// unknownLinks returns a report without known values.
func unknownLinks() (l LinkReport) {
	for i := range l.Traffic {
		l.Traffic[i] = telemetry.UnknownTraffic()
	}
	return l
}

// complete copies those times from known to t that a rank knows only after it has reported a step.
func complete(t, known *replica.StepTimes) {
	t.Communication, t.Hidden, t.Optimizer = known.Communication, known.Hidden, known.Optimizer
}
