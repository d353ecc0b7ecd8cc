package estimate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

const (
	// unknownShape is the standard deviation of the surprise at a new share, for each unit of distance (in log) to the
	// nearest measured share. Such a surprise is not evidence about other ranks.
	unknownShape = 0.75
	// startError is the standard deviation of the log of the first step's time because of the start of the program.
	// Smaller: a slow start distorts the curve. Larger: the first step contributes less to the first decision.
	startError = 0.1
	// startDropped is a log of a ratio of times. The first step is dropped if the rank is faster by more than this in
	// the second window. Smaller: times that the curve explains are dropped, too. Larger: a slow first step bends the
	// curve.
	startDropped = 1.0
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

// fewSteps is the number of steps of a window up to which its values need no memory of the heap. A decision with many
// ranks would otherwise allocate several lists for each rank.
const fewSteps = 16

// stepsOf returns a list of n values: room if it is large enough.
func stepsOf(room *[fewSteps]float64, n int) []float64 {
	if n <= fewSteps {
		return room[:n]
	}
	return make([]float64, n)
}

// newest returns the logs after a jump within the window. It removes the longest beginning of the window that certainly
// differs from the rest.
func newest(logs []float64, noise, sure float64) []float64 {
	const least, jump = 3, 0.1
	low, high := math.Inf(1), math.Inf(-1)
	for _, l := range logs {
		low, high = min(low, l), max(high, l)
	}
	if high-low <= jump {
		return logs
	}
	var room [2][fewSteps]float64
	lowest, highest := stepsOf(&room[0], len(logs)), stepsOf(&room[1], len(logs)) // up to each step
	low, high = math.Inf(1), math.Inf(-1)
	for i, l := range logs {
		low, high = min(low, l), max(high, l)
		lowest[i], highest[i] = low, high
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
		// of a difference of medians
		spread := math.Sqrt(noise * math.Pi / 2 * (1/float64(cut) + 1/float64(len(logs)-cut)))
		if d := after - before; math.Abs(d) > max(sure*spread, jump) && sameSide(logs[cut:], before+d/2, d) &&
			sameSide(logs[:cut], before+d/2, -d) {
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
// they are not outliers. An example is a CPU quota that every other step exhausts. robustMean then returns the log of
// the mean time.
func robustMean(values []float64) (m, variance float64) {
	const sigmas, plain = 2.5, 0.1
	center := stat.Median(values)
	var room [fewSteps]float64
	distances := stepsOf(&room, len(values))
	for i, v := range values {
		distances[i] = math.Abs(v - center)
	}
	edge := max(sigmas*stat.MADToSigma*stat.Median(distances), 0.03)
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

// appendLogs appends the logs of times to a list.
func appendLogs(logs, seconds []float64) []float64 {
	for _, s := range seconds {
		logs = append(logs, math.Log(s))
	}
	return logs
}

// logsOfAll returns the logs of the times of all ranks, in one piece of memory.
func logsOfAll(seconds [][]float64) [][]float64 {
	n := 0
	for _, s := range seconds {
		n += len(s)
	}
	logs, flat := make([][]float64, len(seconds)), make([]float64, 0, n)
	for r, s := range seconds {
		first := len(flat)
		flat = appendLogs(flat, s)
		logs[r] = flat[first:len(flat):len(flat)]
	}
	return logs
}

// read returns the reading of a window from the logs of its steps, in order. opening marks the first windows, in which
// all ranks have one noise ([openingNoise.pool]).
func (e *posterior) read(samples int, logs []float64, opening bool) reading {
	if len(logs) == 0 {
		return reading{}
	}
	m := reading{samples: float64(samples)}
	if slope := ramp(logs, e.noise, e.peers.sure); slope != 0 {
		for i := range logs { // as of the last step
			logs[i] += slope * float64(len(logs)-1-i)
		}
		m.slope, m.shift = slope, slope*float64(len(logs)-1)
		m.shiftVariance = 12 * e.noise / float64(len(logs))
	} else if after := newest(logs, e.noise, e.peers.sure); len(after) < len(logs) {
		before := logs[:len(logs)-len(after)]
		m.shift = stat.Median(after) - stat.Median(before)
		m.shiftVariance = math.Pi / 2 * e.noise * (1/float64(len(after)) + 1/float64(len(before)))
		logs = after
	}
	m.log, _ = robustMean(logs)
	m.steps, m.opening = len(logs), opening
	n := float64(m.steps)
	if n > 2 && e.known && !opening {
		var room [fewSteps]float64
		_, variance := robustMean(level(logs, stepsOf(&room, len(logs))))
		keep := min(e.weight, memory*n)
		e.own = (keep*e.own + (n-1)*variance) / (keep + n - 2)
		e.weight = keep + n - 2
		e.useNoise()
	}
	m.variance = e.noise/n + windowNoise*windowNoise + e.jitter
	e.compare(&m)
	return m
}

// compare sets the surprise of a reading and its variance.
func (e *posterior) compare(m *reading) {
	m.surprise = math.NaN()
	if expected, doubt := e.expect(m.samples); e.known && !math.IsNaN(expected) {
		m.surprise, m.doubt = m.log-m.shift-expected-boundarySteps*e.trend, doubt+m.variance
		if e.cell(m.samples) < 0 {
			nearest := math.Inf(1)
			for _, c := range e.cells {
				nearest = min(nearest, math.Abs(math.Log(m.samples/c.samples)))
			}
			m.doubt += stat.Square(unknownShape * nearest)
			// A surprise that the shape causes is not evidence of a change that all ranks have in common. In the first
			// windows, the shape causes every surprise at a new share ([posterior.update]).
			if m.opening || stat.Square(m.surprise) > stat.Square(likelySigmas)*m.doubt || e.shape.tests(m.samples) {
				m.surprise = math.NaN()
			}
		}
	}
}

// level writes logs without their linear trend to out, so that a moving level does not count as noise.
func level(logs, out []float64) []float64 {
	n := float64(len(logs))
	slope := 0.0
	for i, l := range logs {
		slope += (float64(i) - (n-1)/2) * l
	}
	slope /= n * (n*n - 1) / 12
	for i, l := range logs {
		out[i] = l - slope*float64(i)
	}
	return out
}

// ramp returns the slope of the logs of a window per step, or 0 if noise or a jump explains them better.
func ramp(logs []float64, noise, sure float64) float64 {
	n := len(logs)
	third := n / 3
	if third < 2 {
		return 0
	}
	d := stat.Median(logs[n-third:]) - stat.Median(logs[:third])
	if math.Abs(d) < max(sure*math.Sqrt(math.Pi*noise/float64(third)), leastShift) {
		return 0
	}
	slope := d / float64(n-third)
	sum, squares := 0.0, 0.0
	residual, middle := 0.0, stat.Median(logs)
	for i, l := range logs {
		sum, squares = sum+l, squares+l*l
		residual += stat.Square(l - middle - slope*(float64(i)-float64(n-1)/2))
	}
	left := 0.0
	for cut := 1; cut < n; cut++ {
		left += logs[cut-1]
		if jump := squares - left*left/float64(cut) - stat.Square(sum-left)/float64(n-cut); jump < residual {
			return 0
		}
	}
	return slope
}

// doubtStart makes the reading of the first step uncertain, because this step also contains the start of the program.
// The start can only make a step longer. If a rank is faster in the second window than the first step predicts, the
// first step says little about the rank. If the rank is much faster at another share, the first step is dropped.
func (e *posterior) doubtStart(m *reading, windows int) {
	switch {
	case windows == 0:
		m.variance += stat.Square(startError)
	case windows == 1 && m.samples > 0 && len(e.cells) == 1:
		expected, doubt := e.expect(m.samples)
		faster := expected - m.log
		if faster <= e.peers.extreme*math.Sqrt(doubt+m.variance) { // the first step was not certainly longer
			return
		}
		if faster > startDropped && m.samples != e.cells[0].samples {
			e.cells, e.cov = e.cells[:0], e.cov[:0]
			if e.borrowed != nil { // its level on this curve was that of the first step
				e.shape, e.borrowed, e.lift, e.liftVariance = nil, nil, 0, 0
			}
		} else {
			e.cov[0][0] += stat.Square(likelySigmas * faster)
		}
	}
}
