package scheduler

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
