package scheduler

import (
	"fmt"
	"math"
)

// Constants of the formula of HyperScore.
const (
	hyperBeta  = 5
	hyperGamma = -math.Ln2
	hyperKappa = 2.1
)

// HyperScore is 100 * (1 + sigma(5 ln V - ln 2)^2.1), where sigma is the logistic function. V compares a run with
// policy fcfs. It is the geometric mean of the ratios of completion time, throughput and utilization, each above 1 if
// the run is better. V = 1 gives 109.955. V must be positive and finite.
func HyperScore(v float64) (float64, error) {
	if !(v > 0) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("HyperScore: got V = %v, want a finite number above 0", v)
	}
	sigma := 1 / (1 + math.Exp(-(hyperBeta*math.Log(v) + hyperGamma)))
	return 100 * (1 + math.Pow(sigma, hyperKappa)), nil
}
