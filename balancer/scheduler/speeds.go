package scheduler

import "math"

// Speeds gives the speed of jobs on GPUs, in steps per second. A speed of 0 means that the kind does not run on these
// GPUs.
type Speeds interface {
	// Alone returns the speed of a job of a kind on n GPUs of one type that no other job uses. spread states that the
	// GPUs belong to several machines.
	Alone(kind, gpuType, n int, spread bool) float64
	// Shared returns the speed of a job of a kind on n GPUs of one type, while a job of kind other uses the same n
	// GPUs. ok is false if the two jobs do not fit on the same GPUs.
	Shared(kind, other, gpuType, n int) (speed float64, ok bool)
	// Mixed returns the speed of a job of a kind on GPUs of several types, counts[t] of type t. The solver of the
	// trainer divides the batch. ok is false if the kind cannot run on different types.
	Mixed(kind int, counts []int, spread bool) (speed float64, ok bool)
}

// MeasuredSpeeds are Speeds that can state which measurement [Speeds.Mixed] lacks.
type MeasuredSpeeds interface {
	Speeds
	// Lacks returns the first missing measurement without which Mixed has no speed; figure is "" if none is missing.
	// gpuType is the type of GPU of this measurement, or -1 if it does not belong to a type.
	Lacks(kind int, counts []int, spread bool) (gpuType int, figure string)
}

// wholeSpeed returns the speed of a job on GPUs of a type within one machine, in steps/s. If the job runs only over
// several machines, it returns this speed. It returns 0 if the job does not run on the type.
func wholeSpeed(j *Job, s Speeds, typ int) float64 {
	if v := s.Alone(j.Kind, typ, j.GPUs, false); v > 0 {
		return v
	}
	if j.GPUs > 1 {
		return max(0, s.Alone(j.Kind, typ, j.GPUs, true))
	}
	return 0
}

// fastestSpeed returns the largest [wholeSpeed] of a job.
func fastestSpeed(c *Cluster, j *Job, s Speeds) (best float64) {
	for t := range c.Types {
		best = max(best, wholeSpeed(j, s, t))
	}
	return best
}

// slowestSpeed returns the speed of a job on one GPU of its slowest type, in steps/s. It returns 0 if the job does not
// run on any type.
func slowestSpeed(c *Cluster, j *Job, s Speeds) float64 {
	slowest := math.Inf(1)
	for t := range c.Types {
		if v := s.Alone(j.Kind, t, 1, false); v > 0 {
			slowest = min(slowest, v)
		}
	}
	if math.IsInf(slowest, 1) {
		return 0
	}
	return slowest
}
