package train

import (
	"fmt"
	"math"
	"time"

	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// Trained sums up the steps of a run, over all its processes. Steps that the run repeats count once. If the run started
// from a checkpoint of another run, the steps of the other run do not count.
//
// Time is the training time. A step lasts from the end of the previous step to its own end. Gaps between steps
// therefore count, such as the work of observers and changes of shares. The time of a step does not include activities
// between two steps that are not training: evaluations, the part of a save that training waits for, comparisons of the
// ranks' parameters, returns to a checkpoint, Options.BeforeStep, and the time before the first step of a process.
//
// Trained covers the last Steps steps of the run. These are not all steps if the run started from a checkpoint of
// another run.
type Trained struct {
	Steps   int64         `json:"steps"`
	Samples int64         `json:"samples"` // over all ranks
	Time    time.Duration `json:"time_ns"`
}

// progress counts the steps and the samples of a run. All values but times are equal on all ranks.
type progress struct {
	schedule   optim.Schedule // with the length of the run
	first      int64          // step at which this process began
	step       int64          // number of optimizer steps done
	end        int64          // last step of the run; 0 if unknown
	epochSteps int64
	skew       int64 // position in the epochs, in steps, minus step; not 0 after a change of the batch size
	seen       int64 // number of samples over the whole run
	trained    Trained
	lastLoss   float64 // see Result.LastLoss

	skipped       int64 // see Result.Skipped
	nanRow        int   // number of consecutive skipped steps
	rollBacks     int64
	replaced      int64 // number of unreadable samples over the whole run
	epochReplaced int   // number of unreadable samples of this epoch
}

func newProgress(schedule optim.Schedule, epochSteps int64) progress {
	return progress{schedule: schedule, epochSteps: epochSteps, lastLoss: math.NaN()}
}

// position returns the run's position in its epochs, in steps of the current batch size.
func (p *progress) position() int64 { return p.step + p.skew }

// rate returns the learning rate of the next step.
func (p *progress) rate() float64 { return p.schedule.Rate(int(p.position())) }

// over reports whether the run has done all of its steps.
func (p *progress) over() bool { return p.end > 0 && p.step >= p.end }

// settleEnd computes the step at which the run ends, which is the length of the schedule. If steps is 0, epochs
// determine it.
func (p *progress) settleEnd(steps int64, epochs int) {
	if p.end = steps; p.end == 0 && epochs > 0 {
		p.end = max(int64(epochs)*p.epochSteps-p.skew, 1)
	}
	if p.end > 0 {
		p.schedule.Total = int(p.end + p.skew)
	}
}

// done counts a step. The parameter out has the totals over all ranks.
func (p *progress) done(out *replica.StepResult, took time.Duration) {
	p.step++
	p.seen += int64(out.Samples)
	p.trained = Trained{p.trained.Steps + 1, p.trained.Samples + int64(out.Samples), p.trained.Time + took}
	p.lastLoss = out.Score().Loss
	if out.Updated {
		p.nanRow = 0
		return
	}
	p.skipped++
	if !out.Lowered { // after Lowered, the next step uses a lower loss scale
		p.nanRow++
	}
}

// countReplaced adds up the samples of a step that could not be read, over all ranks. The sum is equal on all ranks.
// Pass starts = true for the first step of an epoch.
func (p *progress) countReplaced(ranks []RankStep, starts bool) {
	if starts {
		p.epochReplaced = 0
	}
	for _, rank := range ranks {
		p.epochReplaced += rank.Replaced
		p.replaced += int64(rank.Replaced)
	}
}

// counters returns the values that influence training and must be equal on all ranks.
func (p *progress) counters() string {
	return fmt.Sprint(p.step, p.position(), p.seen, p.nanRow, p.epochReplaced, p.skipped, p.rollBacks, p.replaced)
}
