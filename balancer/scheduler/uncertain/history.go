package uncertain

import "math"

// memory is the number of finished jobs of a kind that determine its running means. With more, random errors have less
// effect, and the means follow a drift later.
const memory = 30

// enough is the number of finished jobs of a kind with which its history begins.
const enough = 5

// leastVariance keeps weights finite if all estimates of a kind are exact: an error of 0.1 %.
const leastVariance = 1e-6

// running is a mean and a variance in which old values lose weight.
type running struct {
	weight, mean, squares float64
}

// add adds a value (West, Updating mean and variance estimates, 1979).
func (r *running) add(x float64) {
	const keep = 1 - 1.0/memory
	r.weight, r.squares = r.weight*keep+1, r.squares*keep
	d := x - r.mean
	r.mean += d / r.weight
	r.squares += d * (x - r.mean)
}

// variance is the variance of the values around their mean.
func (r *running) variance() float64 { return max(leastVariance, r.squares/r.weight) }

// history contains the finished jobs of one kind, as natural logarithms.
type history struct {
	jobs  int
	work  running // log(work / GPUs)
	wrong running // log(work / stated estimate)
}

func (h *history) add(work, stated float64, gpus int) {
	h.jobs++
	h.work.add(math.Log(work / float64(gpus)))
	h.wrong.add(math.Log(work / stated))
}

// estimate corrects a stated estimate.
func (h *history) estimate(stated float64, gpus int) float64 {
	if h.jobs < enough {
		return stated
	}
	a, b := 1/h.wrong.variance(), 1/h.work.variance()
	return limited(math.Exp((a*(math.Log(stated)+h.wrong.mean) + b*(h.work.mean+math.Log(float64(gpus)))) / (a + b)))
}
