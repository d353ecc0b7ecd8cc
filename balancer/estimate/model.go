package estimate

import "github.com/hetero-train/hetero-train/balancer/divide"

// Options describe the ranks before the first window.
type Options struct {
	Limits      []int          // samples: the largest share of each rank, at which its curve ends
	Active      []bool         // ranks that can have samples
	Interval    int            // steps of a window, except for the first ones
	Types       []string       // device types of the ranks; nil: unknown
	Curves      []divide.Curve // of earlier runs; nil, or an empty curve of a rank: none
	CurveErrors []float64      // standard errors of the times of Curves, as fractions; nil: none
}

// Model is the posterior of the step times of all ranks. After each window of steps with constant shares, Learn takes
// the measured times, and Fit then computes the curves.
type Model struct {
	options Options
	ranks   []*posterior
	common  commonMode
	noise   openingNoise
	types   deviceTypes
	bends   belief // in the bends of all curves
	curves
	scratch []float64 // of levelOn

	windows   int // so far
	disturbed int // remaining windows of the disturbance; 0: there is none
}

// New returns the model before the first window.
func New(o Options) *Model {
	m := &Model{options: o, ranks: make([]*posterior, len(o.Limits)), common: newCommonMode(), types: typesOf(o.Types),
		bends: priorBends, curves: newCurves(len(o.Limits))}
	for r, limit := range o.Limits {
		sigma := 0.0
		if o.CurveErrors != nil {
			sigma = o.CurveErrors[r]
		}
		m.ranks[r] = newPosterior(m.prior(r), sigma, limit)
	}
	m.setPeers()
	return m
}

// prior returns the curve of an earlier run, nil if there is none.
func (m *Model) prior(rank int) divide.Curve {
	if m.options.Curves == nil || !m.options.Active[rank] {
		return nil
	}
	return m.options.Curves[rank]
}

// Start returns the curves before the first window. known is true if each active rank has a curve of an earlier run.
func (m *Model) Start() (start []divide.Curve, known bool) {
	known = m.options.Curves != nil
	for r, active := range m.options.Active {
		start = append(start, timeless)
		if prior := m.prior(r); active {
			start[r] = m.ranks[r].shape.between(prior, m.options.Limits[r])
			known = known && len(prior) > 0
		}
	}
	return start, known
}

// setPeers gives each rank its peers.
func (m *Model) setPeers() {
	all := newPeers(len(m.ranks))
	for _, e := range m.ranks {
		e.peers = all
	}
	m.types.peers = make([]*peers, len(m.types.groups))
	for g, group := range m.types.groups {
		if len(group) > largeType {
			m.types.peers[g] = newPeers(len(m.ranks))
			for _, r := range group {
				m.ranks[r].peers = m.types.peers[g]
			}
		}
	}
}
