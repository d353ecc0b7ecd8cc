package observe

import "time"

// eta estimates the remaining time of a run from the times of past steps and evaluations. Recent steps have more
// weight, and a single slow step has little effect.
type eta struct {
	step  float64 // mean time of a step, s
	eval  float64 // time of the last evaluation, s
	steps int64   // number of measured steps
}

// etaSteps is the approximate number of steps that the mean covers. With a smaller number, the estimate follows a
// change of speed sooner, but is noisier.
const etaSteps = 50

// stepTook adds the time of a step. The time of the second step replaces that of the first step, which loads code and
// touches memory for the first time.
func (e *eta) stepTook(d time.Duration) {
	e.steps++
	weight := 1 / float64(etaSteps)
	switch {
	case e.steps <= 2:
		weight = 1
	case e.steps <= etaSteps: // mean of all steps
		weight = 1 / float64(e.steps-1)
	}
	e.step += weight * (d.Seconds() - e.step)
}

// evalTook sets the time of an evaluation.
func (e *eta) evalTook(d time.Duration) { e.eval = d.Seconds() }

// left returns the estimated time of the given numbers of steps and evaluations.
func (e *eta) left(steps, evaluations int64) time.Duration {
	return time.Duration((float64(steps)*e.step + float64(evaluations)*e.eval) * float64(time.Second))
}

// evaluationsLeft returns the number of evaluations after a step: one after every interval steps, and one at the end of
// the run.
func evaluationsLeft(step, total, interval int64) int64 {
	if interval <= 0 || step >= total {
		return 0
	}
	return (total+interval-1)/interval - step/interval
}
