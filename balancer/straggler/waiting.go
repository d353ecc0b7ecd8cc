package straggler

import "math"

// Waiting sums over a window how long ranks waited for each other. In synchronous training, all ranks of a step wait
// for the slowest rank, so the compute times of the steps determine all waits.
type Waiting struct {
	// Sums over Steps: Seconds[i] is the time that rank i waited for slower ranks. Caused[i] is the total time that
	// other ranks waited for rank i. Slowest[i] is the number of steps in which rank i was the slowest rank; ties go to
	// the lower rank.
	Seconds, Caused []float64
	Slowest         []int
	Steps           int // steps that at least two ranks measured

	imbalance float64 // sum over steps
}

// Add takes the compute times of one step, in s for each rank, without waits for other ranks. NaN or 0 is a rank
// without samples or without a measurement, which Add leaves out. If the number of ranks changes, the sums start again.
func (w *Waiting) Add(step []float64) {
	if len(step) != len(w.Seconds) {
		*w = Waiting{Seconds: make([]float64, len(step)), Caused: make([]float64, len(step)),
			Slowest: make([]int, len(step))}
	}
	slowest, least, ranks := -1, math.Inf(1), 0
	for i, seconds := range step {
		if !measured(seconds) {
			continue
		}
		ranks++
		least = min(least, seconds)
		if slowest < 0 || seconds > step[slowest] {
			slowest = i
		}
	}
	if ranks < 2 {
		return
	}
	most := step[slowest]
	for i, seconds := range step {
		if measured(seconds) {
			w.Seconds[i] += most - seconds
			w.Caused[slowest] += most - seconds
		}
	}
	w.Slowest[slowest]++
	w.Steps++
	w.imbalance += (most - least) / most
}

// Imbalance is the load imbalance: (max-min)/max of the ranks' compute times, mean over the steps; 0 without
// measurements.
func (w *Waiting) Imbalance() float64 {
	if w.Steps == 0 {
		return 0
	}
	return w.imbalance / float64(w.Steps)
}

// Reset begins the next window.
func (w *Waiting) Reset() {
	clear(w.Seconds)
	clear(w.Caused)
	clear(w.Slowest)
	w.Steps, w.imbalance = 0, 0
}
