package observe

import "time"

// eta estimates the remaining time of a run from the times of its steps and evaluations so far. Recent steps have more
// weight; one slow step changes the estimate little.
type eta struct {
	step  float64 // mean time of a step, s
	eval  float64 // of the last evaluation, s
	steps int64   // measured so far
}

// etaSteps is the approximate number of steps that the mean covers. A smaller number follows a change of speed sooner,
// and has more noise.
const etaSteps = 50

// stepTook adds a step. The first step of a process counts only until the second one, because it loads code and touches
// memory for the first time.
func (e *eta) stepTook(d time.Duration) {
	e.steps++
	weight := 1 / float64(etaSteps)
	switch {
	case e.steps <= 2:
		weight = 1
	case e.steps <= etaSteps: // the plain mean
		weight = 1 / float64(e.steps-1)
	}
	e.step += weight * (d.Seconds() - e.step)
}

// evalTook adds an evaluation.
func (e *eta) evalTook(d time.Duration) { e.eval = d.Seconds() }

// left returns the time of the remaining steps and evaluations.
func (e *eta) left(steps, evaluations int64) time.Duration {
	return time.Duration((float64(steps)*e.step + float64(evaluations)*e.eval) * float64(time.Second))
}

// evaluationsLeft returns the number of evaluations after a step: one every interval steps, and one at the end.
func evaluationsLeft(step, total, interval int64) int64 {
	if interval <= 0 || step >= total {
		return 0
	}
	return (total+interval-1)/interval - step/interval
}
