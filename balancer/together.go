package balancer

import "math"

// together is what all ranks' times do alike from window to window: ranks of one host share its clock, its memory and its neighbours. It says nothing of the
// shares, which only the ranks' speeds beside each other decide, and taken for each rank's own it would move them.
type together struct {
	variance float64 // of the log of a window's mean, in common
	weight   float64 // windows behind it
}

const (
	togetherPrior  = 0.02 // standard deviation
	togetherWeight = 2.0  // windows that it counts as
	togetherMemory = 10.0 // windows that the variance is averaged over
	togetherScale  = 0.02 // standard deviation of chance beyond which a window tells little
	togetherSure   = 9.0  // times what chance explains: beyond that it is in common, whatever windows before did
	togetherLasts  = 25.0 // times what chance and windows before explain: beyond that it is no window's alone
	levelRate      = 0.3  // of what ranks do alike that their curves follow, a window: they tell the time of a step, too
)

func newTogether() together { return together{togetherPrior * togetherPrior, togetherWeight} }

// estimate is by how much the ranks' windows deviate alike, log, and its variance. lasts says that it is more than what they do from window to window: the
// ranks have another speed now.
func (t *together) estimate(readings []reading) (offset, variance float64, lasts bool) {
	var surprises []float64
	for _, m := range readings {
		if m.samples > 0 && !math.IsNaN(m.surprise) {
			surprises = append(surprises, m.surprise)
		}
	}
	if len(surprises) < 2 {
		return 0, t.variance, false
	}
	center, kept, sum, weights := median(surprises), 0, 0.0, 0.0
	for _, m := range readings {
		if m.samples > 0 && math.Abs(m.surprise-center) <= shiftSigmas*math.Sqrt(m.doubt) { // others have changed by themselves
			kept, sum, weights = kept+1, sum+m.surprise/m.doubt, weights+1/m.doubt
		}
	}
	if kept < 2 || 2*kept <= len(surprises) {
		return 0, t.variance, false
	}
	mean, chance := sum/weights, 1/weights
	before := max(t.variance, mean*mean-togetherSure*chance)
	lasts = mean*mean > togetherLasts*(t.variance+chance)
	t.learn(mean, chance)
	known := before / (before + chance)
	return known * mean, known * chance, lasts
}

// learn takes in the mean surprise of a window, which has a variance by chance alone.
func (t *together) learn(mean, chance float64) {
	tells := square(togetherScale) / (square(togetherScale) + chance)
	keep := min(t.weight, togetherMemory)
	seen := min(square(mean), togetherSure*(t.variance+chance)) - chance
	t.variance = max((keep*t.variance+tells*seen)/(keep+tells), 0)
	t.weight = keep + tells
}

// follow takes what ranks do alike out of their readings, and lets their curves follow: slowly, or at once where it lasts. So a rank that stays as it is while
// most become slower is faster beside them, and yet takes the time that it took.
func (t *together) follow(ranks []*estimate, readings []reading) {
	offset, variance, lasts := t.estimate(readings)
	level := levelRate * offset
	if lasts {
		level = offset
	}
	for r, e := range ranks {
		if m := readings[r]; m.samples > 0 {
			e.update(m.samples, m.log-offset, m.variance+variance)
		}
		e.move(level, 0)
	}
}
