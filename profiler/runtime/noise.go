package runtime

import "github.com/hetero-train/hetero-train/profiler/telemetry"

// Cause is a cause of noise: it makes the times of ranks vary from step to step.
type Cause struct {
	Name     string // for example "CPU quota"; "unknown": no sensor shows a cause; "": the noise is small
	Rank     int    // rank that causes most of the noise; -1: no single rank
	Evidence string // sensor values as text, with the rank; "" for an unknown cause
}

// stops reports whether the cause temporarily stops a process. Such a cause also makes exchanges longer.
func (c Cause) stops() bool {
	return c.Evidence != "" && (c.Name == telemetry.Declared[telemetry.CPUQuota].Cause ||
		c.Name == telemetry.Declared[telemetry.StolenCPU].Cause)
}

// caused is the noise of one cause.
type caused struct {
	cause Cause
	lost  float64 // s
}

// noises contains the noise of several steps, divided by cause.
type noises []caused

// add adds noise. Only the newest evidence of a cause is kept.
func (n *noises) add(seconds float64, cause Cause) {
	if !(seconds >= 0) {
		return
	}
	for i := range *n {
		if k := &(*n)[i]; k.cause.Name == cause.Name && k.cause.Rank == cause.Rank {
			k.cause, k.lost = cause, k.lost+seconds
			return
		}
	}
	*n = append(*n, caused{cause, seconds})
}

// mainCause returns the cause of more than half of the noise, or Cause{} if there is none.
func (n noises) mainCause() Cause {
	total := 0.0
	for _, k := range n {
		total += k.lost
	}
	for _, k := range n {
		if k.cause.Name != "" && k.lost > total/2 {
			return k.cause
		}
	}
	return Cause{}
}

// of returns c, unless c and the verdict name different ranks. The parameter rank is the rank that the verdict names;
// -1: no single rank.
func (c Cause) of(rank int) Cause {
	if c.Rank >= 0 && rank >= 0 && c.Rank != rank {
		return Cause{}
	}
	return c
}
