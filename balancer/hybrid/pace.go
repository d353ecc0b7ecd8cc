package hybrid

import "math/bits"

// fewSteps is the number of steps that show the noise of a step: the length of the first window, and of a probe that
// ends early. Larger: a bad probe costs more.
const fewSteps = 2

// changeSigmas is the number of standard deviations of the mean step by which a change must lose, beyond the cost of a
// probe, so that its window ends early. Smaller: ends more good changes, after too few steps to learn from. Larger: a
// bad change costs more.
const changeSigmas = 4.5

// pace is the length of the windows.
type pace struct {
	interval int  // steps between two decisions
	windows  int  // so far
	blind    bool // neither scores nor curves of all ranks gave the first shares
}

// length returns the number of steps of the next window. If the policy starts blind, the first shares are equal and
// cost most, so the first windows have 1, 2, 4, … steps. One step does not show its noise. If the interval has no room
// for a later window of more steps, the first window is as long as the interval.
func (p *pace) length() int {
	switch {
	case p.blind && p.interval > fewSteps:
		return min(1<<min(p.windows, bits.Len(uint(p.interval))), p.interval)
	case p.windows == 0:
		return min(fewSteps, p.interval)
	}
	return p.interval
}

// opening reports whether this is one of the first windows.
func (p *pace) opening() bool { return p.windows == 0 || p.length() < p.interval }
