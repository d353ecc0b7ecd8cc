package balancer

// Step contains the measurements of one optimizer step. Policies ignore a time below a nanosecond or above a billion
// seconds. If a list has fewer elements than there are ranks, the other ranks were not measured.
type Step struct {
	Shares []int // samples of every rank; they may differ from the decided shares
	// Own is each rank's time for data, forward and backward, in s, without waits for other ranks. Update is the time
	// of the optimizer before that. Their sum is the time from the end of one exchange of gradients to the moment when
	// the rank has its gradients for the next exchange.
	Own, Update []float64
	Data        []float64 // of Own, spent waiting for data; nil: unknown
	Pause       []float64 // of Update, time between two steps; nil: unknown
	Exposed     float64   // s of communication after the slowest rank's last gradient
	Seconds     float64   // of the whole step: the longest time that a rank reports
	// Measured is the time from the end of the previous step to the end of this step, in s, for explanations; 0: use
	// Seconds. It is shorter than Seconds if ranks report times of different steps.
	Measured float64
	// Utilization and Memory of each rank's device as fractions, 0…1; nil or NaN: unknown.
	Utilization, Memory []float64
	// Left is the number of remaining steps of the run; 0: unknown. Policies try a share only if the expected gain
	// before the end of the run exceeds the cost.
	Left int
	// Settling marks steps during which ranks compile plans for a change. Policies ignore their times.
	Settling bool
}

// WholeSeconds returns Measured, or Seconds if Measured is unknown.
func (s *Step) WholeSeconds() float64 {
	if s.Measured > 0 {
		return s.Measured
	}
	return s.Seconds
}
