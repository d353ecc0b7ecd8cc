package hybrid

// prober selects probes. A probe tries shares that may be better than the best known ones, for one window. It ends
// after two steps if it costs more than probeCost.
type prober struct {
	*chooser
	running    bool // the shares in use are those of a probe
	quiet      int  // decisions since the last probe, or since the last change for a gain
	patience   int  // such decisions before the next probe; 1 at first
	fallProbes int  // probes of falls so far
	left       int  // remaining steps of the run; 0: unknown
}

// probeCost is the additional time of a step, as a fraction, from which a probe ends early. Larger: bad probes cost
// more.
const probeCost = 0.05

// windowsLeft returns the number of windows in which better shares pay: the remaining windows of the run, or the number
// of windows so far if the end of the run is unknown.
func (p *prober) windowsLeft() float64 {
	if p.left > 0 {
		return max(float64(p.left)/float64(p.opts.Interval)-1, 0) // one window is the probe itself
	}
	return float64(p.model.Windows())
}

// cost returns the cost, in windows, of a probe that makes a step longer by the fraction slower. A probe that costs too
// much ends early, after one more step, in which shares change.
func (p *prober) cost(slower float64) float64 {
	if slower > probeCost {
		return min((fewSteps+1)/float64(p.opts.Interval), 1) * slower
	}
	return max(slower, 0)
}
