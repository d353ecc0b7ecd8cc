package scheduler

// Speeds gives the speed of jobs on GPUs, in steps per second. A speed of 0 means that the kind does not run on these
// GPUs.
type Speeds interface {
	// Alone is the speed of a job of a kind on n GPUs of one type, which no other job uses. spread: the GPUs belong to
	// several machines.
	Alone(kind, gpuType, n int, spread bool) float64
	// Shared is the speed of a job of a kind on n GPUs of one type, while a job of kind other uses the same n GPUs. ok
	// is false if the two jobs do not fit on the same GPUs.
	Shared(kind, other, gpuType, n int) (speed float64, ok bool)
	// Mixed is the speed of a job of a kind on GPUs of several types, counts[t] of type t, with a batch that the solver
	// of the trainer divides. ok is false if the kind cannot run on different types.
	Mixed(kind int, counts []int, spread bool) (speed float64, ok bool)
}

// MeasuredSpeeds are Speeds that can state which figure [Speeds.Mixed] lacks.
type MeasuredSpeeds interface {
	Speeds
	// Lacks returns the first figure without which Mixed has no speed, and the type of GPU whose figure it is; -1 if
	// the figure belongs to no type. figure is "" if Mixed lacks none.
	Lacks(kind int, counts []int, spread bool) (gpuType int, figure string)
}
