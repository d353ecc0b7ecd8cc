package estimate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

const (
	jumpPrior  = 0.01 // probability of a jump of the level in one window, before any measurement
	jumpWeight = 0.5  // weight of jumpPrior and of a log of 1, in jumps
)

// causes are the probabilities that a surprise at a new share comes from the level, or from a disturbance of this
// window. Otherwise it comes from the shape.
type causes struct{ level, disturbed float64 }

// jump returns the probability that the level was another one in this window.
func (c causes) jump() float64 { return c.level + c.disturbed }

// jumps are the jumps of a rank's level so far. They are never forgotten.
type jumps struct {
	count, squares float64 // number, and sum of the squares of the logs
	windows        float64 // in which a jump would have been seen
}

// add counts a jump, by a log, that has occurred with some probability.
func (j *jumps) add(by, probability float64) {
	j.count, j.squares = max(j.count+probability, 0), max(j.squares+probability*by*by, 0)
}

// density returns the probability of a jump in a window, multiplied by the density of its log. variance is that of a
// measurement of the log. Most jumps can be small, such as changes of a clock, and a few large, so Student's
// distribution is used.
func (j *jumps) density(by, variance float64) float64 {
	rate := (jumpWeight + j.count) / (jumpWeight/jumpPrior + j.windows)
	return rate * student(by, (jumpWeight+j.squares)/(jumpWeight+j.count)+variance)
}

// student is the density of Student's distribution with mean 0 and 3 degrees of freedom, the fewest with a variance.
// Its variance is 3 times the square of its scale. Some curves have kinks, for example where the quota of a container
// ends. Large surprises therefore occur more often than under the normal distribution.
func student(x, squareScale float64) float64 {
	const freedom = 3
	return 2 / (math.Pi * math.Sqrt(freedom*squareScale)) / stat.Square(1+x*x/(freedom*squareScale))
}
