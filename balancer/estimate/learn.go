package estimate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// Window contains the measured times of a window: consecutive steps with constant shares.
type Window struct {
	Shares  []int
	Seconds [][]float64 // by rank and step; no steps: the rank was not measured
	Opening bool        // one of the first windows, which have fewer steps than an interval
	// Blind states that nothing was known before the first step, whose time also contains the start of the program.
	Blind bool
}

// Learn updates the level of each rank from the times of one window. A change that all ranks have in common is not
// attributed to a rank. The levels follow it slowly, or immediately if it is larger than usual changes.
func (m *Model) Learn(w *Window) {
	if w.Opening {
		m.noise.pool(m.ranks, w.Seconds, &m.types)
	}
	m.types.poolNoise(m.ranks)
	readings := m.read(w)
	m.endDisturbances(readings)
	common, variance, lasts := m.common.estimate(readings)
	level := follow * common
	if lasts {
		level = common
	}
	jumped := lasts && math.Abs(common) > leastJump
	for r, e := range m.ranks {
		moved, calm := e.learn(&readings[r], common, variance)
		jumped = moved || jumped
		if lasts && readings[r].samples > 0 {
			e.jumps.add(common, 1)
		}
		e.move(level, 0)
		if e.away++; calm && !lasts && m.disturbed == 0 && m.windows > 0 {
			e.keep()
		}
	}
	if m.disturbed = max(m.disturbed-1, 0); jumped {
		m.disturbed = memory
	}
}

// read returns the readings of all ranks.
func (m *Model) read(w *Window) []reading {
	readings, logs, noise := make([]reading, len(m.ranks)), logsOfAll(w.Seconds), make([]float64, len(m.ranks))
	for r, e := range m.ranks {
		noise[r] = e.noise
		m.curves.bounds[r].add(w.Shares[r], w.Seconds[r])
	}
	withoutCommon(logs, stat.Median(noise))
	for r, e := range m.ranks {
		if readings[r] = e.read(w.Shares[r], logs[r], w.Opening); w.Blind {
			e.doubtStart(&readings[r], m.windows)
		}
	}
	return readings
}

// endDisturbances returns ranks to their state before a disturbance if the readings show its end.
func (m *Model) endDisturbances(readings []reading) {
	for r, e := range m.ranks {
		switch reading := &readings[r]; {
		case m.disturbed > 0 && e.ended(reading, m.common.variance):
			e.restore()
		case m.disturbed == 1 && e.mayEnd(reading, m.common.variance):
			e.try()
		default:
			continue
		}
		e.compare(&readings[r])
	}
}
