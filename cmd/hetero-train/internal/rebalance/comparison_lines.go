package rebalance

import (
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// measured contains the share and the median compute time (s) of each rank in a block.
type measured struct {
	Shares  []int     `json:"shares"`
	Seconds []float64 `json:"seconds"` // 0 for a rank without samples
}

// Near the shares of interest, a comparison models the step time of a rank as a line. The fit is robust, because there
// are only a few blocks, and other processes disturb some of them.
const (
	// maximum |ln(a/b)| of two shares a and b that use the same line; slightly larger than within the splits of one
	// stage
	alike     = 0.45
	fitRounds = 6
	edge      = 1.5 // deviation at which the weight of a block begins to fall (Huber), in robust standard deviations
	// Limits of the slope, divided by the mean time per sample. At 1, the fixed part of the step time is 0.
	leastSlope, mostSlope = 0.25, 1.1
)

// fitLines fits a line to the times of each rank, at shares near those in target. The parameter total is the batch. A
// block can be slower on all ranks by a common factor, for example because the CPU clock is lower. Such a factor
// contains no information about shares, so fitLines estimates the factor of each block and removes it.
func fitLines(blocks []measured, target []int, total int) []divide.Curve {
	lines, common := make([]divide.Curve, len(target)), make([]float64, len(blocks))
	weights := make([]float64, len(blocks))
	for range fitRounds {
		for r := range lines {
			lines[r] = line(blocks, common, weights, r, target[r], total)
		}
		for i, b := range blocks {
			var logs []float64
			for r, n := range b.Shares {
				if b.Seconds[r] > 0 && isAlike(n, target[r]) {
					logs = append(logs, math.Log(b.Seconds[r]/lines[r].At(float64(n))))
				}
			}
			if common[i] = 0; len(logs) > 1 {
				common[i] = middle(logs)
			}
		}
	}
	return lines
}

// nearest returns the measured share of a rank that is nearest to target by ratio. It returns 0 if the rank was never
// measured.
func nearest(blocks []measured, rank, target int) int {
	best := 0
	for _, b := range blocks {
		if n := b.Shares[rank]; b.Seconds[rank] > 0 &&
			(best == 0 || max(n, target)*min(best, target) < max(best, target)*min(n, target)) {
			best = n
		}
	}
	return best
}

func isAlike(a, b int) bool { return math.Abs(math.Log(float64(a)/float64(b))) <= alike }

// middle returns the median of values. It sorts values.
func middle(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// line fits a line to the times of a rank, at measured shares near target. If no measured share is near target, it uses
// the nearest measured shares. It divides the times of block i by exp(common[i]), the common factor of the block. If
// only one share was measured, the line goes through the origin. The slice weights is scratch memory with one element
// per block.
func line(blocks []measured, common, weights []float64, rank, target, total int) divide.Curve {
	var fit straight
	target = nearest(blocks, rank, target)
	for i, b := range blocks {
		if weights[i] = 0; b.Seconds[rank] > 0 && isAlike(b.Shares[rank], target) {
			weights[i] = 1
		}
	}
	for range fitRounds {
		// the rank has no measured block, because its limit is 0 samples
		if !fit.through(blocks, common, weights, rank) {
			return divide.Curve{{Samples: 1, Seconds: 0}}
		}
		var far []float64
		for i, b := range blocks {
			if weights[i] > 0 {
				far = append(far, fit.off(b, common[i], rank))
			}
		}
		limit := max(edge*1.4826*middle(far), 1e-4)
		for i, b := range blocks {
			if weights[i] > 0 {
				weights[i] = min(1, limit/max(fit.off(b, common[i], rank), 1e-9))
			}
		}
	}
	most := float64(max(total, 2))
	return divide.Curve{{Samples: 1, Seconds: fit.at(1)}, {Samples: most, Seconds: fit.at(most)}}
}

// straight is the line y + slope·(samples − x), in s.
type straight struct{ x, y, slope float64 }

func (l *straight) at(samples float64) float64 { return max(l.y+l.slope*(samples-l.x), 1e-6) }

// off returns |ln(time of the block / time of the line) − common|.
func (l *straight) off(b measured, common float64, rank int) float64 {
	return math.Abs(math.Log(b.Seconds[rank]/l.at(float64(b.Shares[rank]))) - common)
}

// through computes the weighted least-squares fit. It returns false if all weights are 0.
func (l *straight) through(blocks []measured, common, weights []float64, rank int) bool {
	var n, sx, sy, sxx, sxy float64
	for i, b := range blocks {
		if w := weights[i]; w > 0 {
			x, y := float64(b.Shares[rank]), b.Seconds[rank]*math.Exp(-common[i])
			n, sx, sy, sxx, sxy = n+w, sx+w*x, sy+w*y, sxx+w*x*x, sxy+w*x*y
		}
	}
	if n == 0 {
		return false
	}
	l.x, l.y = sx/n, sy/n
	each := l.y / l.x
	l.slope = each
	if sxx, sxy := sxx-n*l.x*l.x, sxy-n*l.x*l.y; sxx > 1e-9*n*l.x*l.x {
		l.slope = min(max(sxy/sxx, leastSlope*each), mostSlope*each)
	}
	return true
}
