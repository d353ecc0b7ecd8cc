package compare

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Confidence is the probability that an interval contains the true mean.
const Confidence = 0.95

// Estimate is a mean over seeds.
type Estimate struct {
	Mean      float64
	Deviation float64 // of single runs
	Low       float64 // of the interval of the mean
	High      float64
}

// estimate returns the mean of values and its interval.
func estimate(values []float64) Estimate {
	mean, deviation := stat.MeanStdDev(values, nil)
	half := math.NaN()
	if n := float64(len(values)); n > 1 {
		half = deviation / math.Sqrt(n) * distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile((1+Confidence)/2)
	} else {
		deviation = math.NaN()
	}
	return Estimate{mean, deviation, mean - half, mean + half}
}

// geometric returns the geometric mean of positive values, its interval, and the standard deviation of the logarithms.
func geometric(values []float64) Estimate {
	e := estimate(logs(values))
	return Estimate{math.Exp(e.Mean), e.Deviation, math.Exp(e.Low), math.Exp(e.High)}
}

func logs(values []float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = math.Log(v)
	}
	return out
}

// studentP is the two-sided p value of the hypothesis that differences have mean 0.
func studentP(differences []float64) float64 {
	n := float64(len(differences))
	if n < 2 {
		return math.NaN()
	}
	mean, deviation := stat.MeanStdDev(differences, nil)
	switch {
	case mean == 0:
		return 1
	case deviation == 0:
		return 0
	}
	t := math.Abs(mean) / (deviation / math.Sqrt(n))
	return 2 * distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Survival(t)
}

// mostExact is the largest number of differences for which the distribution of the rank sum is computed exactly. Above
// it, the normal approximation has an error below 0.001.
const mostExact = 200

// wilcoxonP returns the exact two-sided p value of the signed-rank test. It is the probability that random signs give a
// rank sum at least as far from the mean as the observed one. Above mostExact differences, wilcoxonP uses the normal
// approximation. It leaves out differences of 0; differences of equal size have their mean rank.
func wilcoxonP(differences []float64) float64 {
	nonzero := slices.DeleteFunc(slices.Clone(differences), func(d float64) bool { return d == 0 })
	if len(differences) < 2 {
		return math.NaN()
	}
	if len(nonzero) == 0 {
		return 1
	}
	slices.SortFunc(nonzero, func(a, b float64) int { return cmp.Compare(math.Abs(a), math.Abs(b)) })
	// Ranks are doubled: twice the mean rank of a tie is an integer, so the distribution of the sum is exact.
	ranks, sum, total := make([]int, len(nonzero)), 0, 0
	for i := 0; i < len(nonzero); {
		j := i
		for j < len(nonzero) && math.Abs(nonzero[j]) == math.Abs(nonzero[i]) {
			j++
		}
		for k := i; k < j; k++ {
			ranks[k] = i + 1 + j
			total += ranks[k]
			if nonzero[k] > 0 {
				sum += ranks[k]
			}
		}
		i = j
	}
	if len(nonzero) > mostExact {
		variance := 0.0
		for _, r := range ranks {
			variance += float64(r) * float64(r) / 4
		}
		distance := max(0, math.Abs(float64(sum)-float64(total)/2)-1) // continuity: sums of doubled ranks are 2 apart
		return min(1, 2*distuv.UnitNormal.Survival(distance/math.Sqrt(variance)))
	}
	probability := make([]float64, total+1)
	probability[0] = 1
	reached := 0
	for _, r := range ranks {
		reached += r
		for s := reached; s >= 0; s-- {
			p := probability[s] / 2
			if s >= r {
				p += probability[s-r] / 2
			}
			probability[s] = p
		}
	}
	distance, p := abs(2*sum-total), 0.0
	for s, q := range probability {
		if abs(2*s-total) >= distance {
			p += q
		}
	}
	return min(p, 1)
}

func abs(n int) int { return max(n, -n) }

// holm corrects p values for the number of tests. NaN remains NaN and does not count as a test.
func holm(p []float64) []float64 {
	out, order := slices.Clone(p), []int{}
	for i := range p {
		if !math.IsNaN(p[i]) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	largest := 0.0
	for k, i := range order {
		largest = max(largest, min(1, p[i]*float64(len(order)-k)))
		out[i] = largest
	}
	return out
}

// Regression is the least-squares line y = Intercept + Slope * x.
type Regression struct {
	Slope     float64
	Intercept float64
	R2        float64 // fraction of the variance of y that the line explains
	P         float64 // of the hypothesis that the slope is 0, for independent runs: see the package comment
	Runs      int
}

// constant reports whether all values are equal, except for rounding errors.
func constant(values []float64) bool {
	low, high := slices.Min(values), slices.Max(values)
	return high-low <= 1e-9*max(math.Abs(low), math.Abs(high))
}

func regress(x, y []float64) Regression {
	n := float64(len(x))
	r := Regression{math.NaN(), math.NaN(), math.NaN(), math.NaN(), len(x)}
	if n < 3 || constant(x) || constant(y) {
		return r
	}
	r.Intercept, r.Slope = stat.LinearRegression(x, y, nil, false)
	correlation := stat.Correlation(x, y, nil)
	r.R2 = correlation * correlation
	t := math.Abs(correlation) * math.Sqrt((n-2)/(1-r.R2))
	r.P = 2 * distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 2}.Survival(t)
	return r
}
