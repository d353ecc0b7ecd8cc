package straggler

import (
	"math"
	"slices"
)

// historyWindows is the number of windows in a history: enough to estimate the noise, and few enough to follow slow
// changes.
const historyWindows = 64

// history contains the values of one quantity of a rank while the rank was healthy. The values are logarithms, so that
// differences are relative. history also counts consecutive outliers.
//
// The test for outliers uses the median and the median absolute deviation (MAD), which tolerate up to half of the
// windows as outliers. 1.4826 times the MAD estimates the standard deviation of a normal distribution. See Iglewicz and
// Hoaglin, "How to Detect and Handle Outliers", ASQC 1993, and Leys and others, "Detecting outliers: Do not use
// standard deviation around the mean, use absolute deviation around the median", J. Exp. Soc. Psychology 49 (2013).
//
// An outlier counts only if the next window is an outlier, too. Single slow windows, even regular ones, have no effect.
// This is the two-in-a-row rule of Lucas and Crosier, "Robust CUSUM", Comm. Statistics A 11 (1982).
type history struct {
	ring   []float64 // ring buffer; the oldest value is at next
	next   int
	sorted []float64 // the same values, sorted

	bad, good, low int // consecutive windows that were slow, normal, and fast beyond the noise
	healthy        int // normal windows so far
	sick           bool
	since          int64   // step of the first of the consecutive bad windows
	pending        float64 // the last window, if it is the first bad one
}

const (
	// smallest deviation of an outlier in standard deviations, if the noise is known (Iglewicz and Hoaglin); up to half
	// of it is normal
	sigmas         = 3.5
	runningWindows = 2   // consecutive outliers after which a verdict begins, and normal windows after which it ends
	assumedWindows = 5.0 // weight of the assumed noise, in windows
	leastCenter    = 5   // windows after which their median is the rank's usual value
	madToSigma     = 1.4826
	// the MAD of 100 values is as exact as the standard deviation of 37 values (Rousseeuw and Croux, JASA 88, 1993)
	madEfficiency  = 0.37
	trustedWindows = 3 // normal windows after which a curve counts as right
)

// center is the median of the history. It is unknown before leastCenter windows.
func (h *history) center() (median float64, known bool) {
	n := len(h.sorted)
	if n < leastCenter {
		return 0, false
	}
	return (h.sorted[(n-1)/2] + h.sorted[n/2]) / 2, true
}

// noise returns the standard deviation of the history. With few windows, it is mixed with the assumed noise.
func (h *history) noise(assumed float64) float64 {
	n := float64(len(h.sorted))
	if n == 0 {
		return assumed
	}
	sigma := madToSigma * h.mad()
	return math.Sqrt((assumedWindows*assumed*assumed + n*sigma*sigma) / (assumedWindows + n))
}

// limit returns the smallest deviation of an outlier. With few windows, the measured noise is uncertain, so the limit
// is more than sigmas standard deviations: the quantile of Student's t distribution with the same probability. The
// quantile is computed with the Cornish-Fisher expansion (Abramowitz and Stegun, 26.7.5).
func (h *history) limit(assumed float64) float64 {
	if len(h.sorted) == 0 {
		return sigmas * assumed
	}
	const z, z2 = sigmas, sigmas * sigmas
	n := assumedWindows + madEfficiency*float64(len(h.sorted)) // degrees of freedom
	t := z * (1 + (z2+1)/(4*n) + ((5*z2+16)*z2+3)/(96*n*n) + (((3*z2+19)*z2+17)*z2-15)/(384*n*n*n))
	return max(sigmas*h.noise(assumed), t*madToSigma*h.mad())
}

// mad returns the median of the distances from the median. The nearest values are around the middle of the sorted
// values, so mad walks outwards instead of sorting again.
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

// judge classifies a window. excess is the deviation from the expected value, and limit is the smallest excess of an
// outlier.
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

// newHistory returns an empty history.
func newHistory() history { return history{pending: math.NaN()} }

// begin marks the quantity as sick, and drops the pending window.
func (h *history) begin() { h.sick, h.pending = true, math.NaN() }

// settle ends the sick state after enough normal windows.
func (h *history) settle() {
	if h.good >= runningWindows {
		h.sick = false
	}
}

// troubled reports whether there are enough consecutive bad windows.
func (h *history) troubled() bool { return h.bad >= runningWindows }

// trusted reports whether the quantity has been normal for enough windows.
func (h *history) trusted() bool { return h.healthy >= trustedWindows }

// learn adds a window to the history, unless the rank is sick. It adds a bad window only if the next window is not bad.
// After two bad windows, the rank is sick, or the caller sets adopt because the new value is normal.
func (h *history) learn(x float64, adopt bool) {
	switch {
	case h.sick:
		return
	case h.low >= runningWindows: // the learned values belong to a curve that is no longer in use
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
