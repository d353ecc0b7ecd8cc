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

// with returns the mean and the variance of normally distributed values, of which least contains a lower limit for each
// value that is not known yet (a censored value). It repeats the two steps of the EM algorithm for the likelihood of
// censored values (Dempster, Laird and Rubin, 1977): each censored value gets its expectation under the current normal
// distribution, and then the distribution is that of all values. Censored values have the weight of a new value.
func (r *running) with(least []float64) (mean, variance float64) {
	mean, variance = r.mean, r.variance()
	for range emSteps {
		sigma := math.Sqrt(variance)
		var sum, squares float64 // of the expected values and squares
		for _, x := range least {
			a := (x - mean) / sigma
			h := hazard(a)
			e := mean + sigma*h
			sum += e
			squares += e*e + max(0, variance*(1+a*h-h*h))
		}
		n := r.weight + float64(len(least))
		next := (r.weight*r.mean + sum) / n
		variance = max(leastVariance, (r.squares+r.weight*r.mean*r.mean+squares)/n-next*next)
		mean = next
	}
	return mean, variance
}

// emSteps is the number of steps of the EM algorithm. The remaining error is far below the statistical one.
const emSteps = 15

// hazard is the density of a standard normal number at a, divided by the probability of a larger one.
func hazard(a float64) float64 {
	if a > 30 { // the probability is 0 in floating point: the first terms of the asymptotic series
		return a + 1/a
	}
	return math.Exp(-a*a/2) / math.Sqrt(2*math.Pi) / (math.Erfc(a/math.Sqrt2) / 2)
}

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

// begun contains the jobs of one kind that have computed and have not finished, as lower limits of natural logarithms.
type begun struct {
	work  []float64 // log(steps so far / GPUs)
	wrong []float64 // log(steps so far / stated estimate)
}

// estimate corrects a stated estimate. b may be nil.
func (h *history) estimate(stated float64, gpus int, b *begun) float64 {
	if h.jobs < enough {
		return stated
	}
	wrong, wrongVariance, work, workVariance := h.wrong.mean, h.wrong.variance(), h.work.mean, h.work.variance()
	if b != nil {
		wrong, wrongVariance = h.wrong.with(b.wrong)
		work, workVariance = h.work.with(b.work)
	}
	x, y := 1/wrongVariance, 1/workVariance
	return limited(math.Exp((x*(math.Log(stated)+wrong) + y*(work+math.Log(float64(gpus)))) / (x + y)))
}

// limited keeps an estimate in the range in which sums and quotients of estimates are finite.
func limited(steps float64) float64 { return min(max(steps, 1e-200), 1e200) }
