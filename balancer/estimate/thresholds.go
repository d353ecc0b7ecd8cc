package estimate

// Noise before any measurement.
const (
	// priorNoise is the standard deviation of the log of a step's time, and of the change that all ranks have in common
	// from window to window.
	priorNoise  = 0.03
	priorWeight = 4.0 // weight of both, in observations
	// memory is the number of windows over which both are averaged, and after which a disturbance counts as the usual
	// state. Larger: more exact, but follows a change of noise later.
	memory      = 12
	windowNoise = 0.002 // standard deviation of the log of a window's mean that more steps do not reduce
)

// Thresholds of changes of a level.
const (
	// likelySigmas, in standard deviations: larger differences of one window are clipped, and a curve certainly falls
	// if its difference is larger.
	likelySigmas = 2.5
	// sureSigmas: beyond this number of standard deviations, the speed of a rank has changed. With fewer, many ranks
	// would give false alarms.
	sureSigmas = 4.5
	leastShift = 0.03 // log: the filter follows smaller changes of speed
	leastJump  = 0.1  // log: smaller jumps of a level begin no disturbance
)

// shapeError is the standard deviation of the log of a time between runs, and between devices of one type.
const shapeError = 0.03

// leastVariance avoids a division by 0. It is the variance of a log or of a relative time.
const leastVariance = 1e-12
