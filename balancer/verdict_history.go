package balancer

import (
	"math"
	"slices"
)

// historyWindows is how many windows a rank is compared with: long enough for a scale, short enough to follow a season.
const historyWindows = 64

// history is what one figure of a rank (as a logarithm, so that 2 % is 2 % at any speed) was like while the rank was
// healthy, and how many windows running it has been out of line.
//
// The test is the median and the median absolute deviation (MAD, times 1.4826 the standard deviation of a normal
// distribution), as in Iglewicz and Hoaglin, "How to Detect and Handle Outliers", ASQC 1993, and Leys and others,
// "Detecting outliers: Do not use standard deviation around the mean, use absolute deviation around the median",
// J. Exp. Soc. Psychology 49 (2013): half of the windows may be outliers themselves. An outlier counts when a second one
// follows it, the two-in-a-row rule of Lucas and Crosier, "Robust CUSUM", Comm. Statistics A 11 (1982): single slow
// windows, however regular, are no trouble.
type history struct {
	ring   []float64 // oldest first from next on
	next   int
	sorted []float64 // the same

	bad, good, low int // windows running that were slow, in line, and fast beyond the noise
	healthy        int // windows in line so far
	sick           bool
	since          int64   // step of the first bad window running
	pending        float64 // the last window, if it was bad and alone so far
}

const (
	sigmas         = 3.5 // how far out of line is an outlier, as in Iglewicz and Hoaglin; half of it is in line
	runningWindows = 2   // outliers that make trouble, windows in line that end it
	assumedWindows = 5.0 // weight of the assumed noise against windows that were seen
	leastCenter    = 5   // windows from which their median is taken for the rank's nature
	madToSigma     = 1.4826
	trustedWindows = 3 // windows in line that prove a curve right
)

// center is the median of the history. It is unknown before leastCenter windows.
func (h *history) center() (median float64, known bool) {
	n := len(h.sorted)
	if n < leastCenter {
		return 0, false
	}
	return (h.sorted[(n-1)/2] + h.sorted[n/2]) / 2, true
}

// noise is the scale of the history, as a standard deviation. Few windows are mixed with the noise that is assumed.
func (h *history) noise(assumed float64) float64 {
	n := float64(len(h.sorted))
	if n == 0 {
		return assumed
	}
	sigma := madToSigma * h.mad()
	return math.Sqrt((assumedWindows*assumed*assumed + n*sigma*sigma) / (assumedWindows + n))
}

// mad is the median of the distances from the median. The nearest values lie around the middle of the sorted ones, so
// that walking outwards finds it without sorting again.
func (h *history) mad() float64 {
	n := len(h.sorted)
	median := (h.sorted[(n-1)/2] + h.sorted[n/2]) / 2
	low, high, distance := (n-1)/2, (n-1)/2+1, 0.0
	for range n/2 + 1 {
		if high >= n || low >= 0 && median-h.sorted[low] <= h.sorted[high]-median {
			distance = median - h.sorted[low]
			low--
		} else {
			distance = h.sorted[high] - median
			high++
		}
	}
	return distance
}

// judge takes how far a window is above what was expected, and the limit from which on that is out of line.
func (h *history) judge(step int64, excess, limit float64) {
	h.low = count(h.low, excess < -limit)
	h.good = count(h.good, excess < limit/2)
	h.bad = count(h.bad, excess > limit)
	switch {
	case h.bad == 1 && !h.sick:
		h.since = step
	case h.bad == 0:
		h.healthy++
	}
}

func count(running int, again bool) int {
	if again {
		return running + 1
	}
	return 0
}

// newHistory has seen nothing.
func newHistory() history { return history{pending: math.NaN()} }

// begin makes trouble of two bad windows; they are not learned.
func (h *history) begin() { h.sick, h.pending = true, math.NaN() }

// settle ends trouble that is over.
func (h *history) settle() {
	if h.good >= runningWindows {
		h.sick = false
	}
}

// troubled reports enough bad windows running.
func (h *history) troubled() bool { return h.bad >= runningWindows }

// trusted reports whether the figure was ever in line for a while.
func (h *history) trusted() bool { return h.healthy >= trustedWindows }

// learn adds a window, unless the rank is sick. A bad one waits for the next: it belongs to the history if it was alone,
// else the caller has either found trouble or, with adopt, decided that this is how the rank is.
func (h *history) learn(x float64, adopt bool) {
	switch {
	case h.sick:
		return
	case h.low >= runningWindows: // what was learned belongs to a curve that is no more
		h.ring, h.sorted, h.next, h.pending = h.ring[:0], h.sorted[:0], 0, math.NaN()
	case h.bad == 1:
		h.pending = x
		return
	case h.bad > 1 && !adopt:
		return
	}
	if !math.IsNaN(h.pending) {
		h.add(h.pending)
		h.pending = math.NaN()
	}
	h.add(x)
}

func (h *history) add(x float64) {
	if len(h.ring) < historyWindows {
		h.ring = append(h.ring, x)
	} else {
		i, _ := slices.BinarySearch(h.sorted, h.ring[h.next])
		h.sorted = slices.Delete(h.sorted, i, i+1)
		h.ring[h.next] = x
		h.next = (h.next + 1) % historyWindows
	}
	i, _ := slices.BinarySearch(h.sorted, x)
	h.sorted = slices.Insert(h.sorted, i, x)
}
