package balancer

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// reading is the mean of the steps of a window, which all have the same share.
type reading struct {
	samples  float64 // 0: the rank was not measured
	steps    int     // in the mean
	opening  bool    // one of the first windows: few steps, and curves that are little known
	log      float64 // of seconds
	variance float64
	// surprise is the difference of the log from its prediction at this share, or NaN without a prediction. doubt is
	// the variance of surprise. It is large for a new share, because two ranks that reach the next tile at the same
	// time look like a slower host.
	surprise, doubt float64

	// The change of the level within the window. log and variance do not contain it: they are as of the last step.
	shift, shiftVariance float64 // log, from the first step to the last
	slope                float64 // log per step, if the level moved steadily
}

// newest removes the steps before a jump within the window: the longest beginning that certainly differs from the rest.
func newest(logs []float64, noise float64) []float64 {
	const least, jump = 3, 0.1
	lowest, highest := make([]float64, len(logs)), make([]float64, len(logs)) // up to each step
	low, high := math.Inf(1), math.Inf(-1)
	for i, l := range logs {
		low, high = min(low, l), max(high, l)
		lowest[i], highest[i] = low, high
	}
	if high-low <= jump {
		return logs
	}
	low, high = math.Inf(1), math.Inf(-1) // from the cut on
	for cut := len(logs) - 1; cut >= 2; cut-- {
		low, high = min(low, logs[cut]), max(high, logs[cut])
		// All steps after the cut must be on one side; otherwise one slow step would count as a jump. If the two sides
		// overlap, the code skips the medians, which take most of the time.
		if cut > len(logs)-least || low < highest[cut-1] && high > lowest[cut-1] {
			continue
		}
		before, after := stat.Median(logs[:cut]), stat.Median(logs[cut:])
		spread := math.Sqrt(noise * math.Pi / 2 * (1/float64(cut) + 1/float64(len(logs)-cut))) // of a difference of medians
		if d := after - before; math.Abs(d) > max(sureSigmas*spread, jump) && sameSide(logs[cut:], before+d/2, d) && sameSide(logs[:cut], before+d/2, -d) {
			return logs[cut:]
		}
	}
	return logs
}

func sameSide(logs []float64, middle, direction float64) bool {
	for _, l := range logs {
		if (l-middle)*direction < 0 {
			return false
		}
	}
	return true
}

// robustMean returns the mean and the variance of logs. It clips values far from the median (Huber), so that one slow
// step (a checkpoint, another process) changes the result little. If two fifths of the values are far from the median,
// they are not outliers, for example with a CPU quota that every other step exhausts. robustMean then returns the log
// of the mean time.
func robustMean(values []float64) (m, variance float64) {
	const sigmas, madToSigma, plain = 2.5, 1.4826, 0.1
	center := stat.Median(values)
	distances := make([]float64, len(values))
	for i, v := range values {
		distances[i] = math.Abs(v - center)
	}
	edge := max(sigmas*madToSigma*stat.Median(distances), 0.03)
	far := 0
	for _, d := range distances {
		if d > max(edge, plain) {
			far++
		}
	}
	if 5*far >= 2*len(values) {
		return plainMean(values)
	}
	for _, v := range values {
		m += min(max(v, center-edge), center+edge)
	}
	m /= float64(len(values))
	for _, v := range values {
		d := min(max(v, center-edge), center+edge) - m
		variance += d * d
	}
	return m, variance / max(float64(len(values)-1), 1)
}

// plainMean returns the log of the mean time, and the variance of the logs around it.
func plainMean(logs []float64) (m, variance float64) {
	sum := 0.0
	for _, l := range logs {
		sum += stat.Exp(l)
	}
	m = math.Log(sum / float64(len(logs)))
	for _, l := range logs {
		variance += stat.Square(l - m)
	}
	return m, variance / max(float64(len(logs)-1), 1)
}
