package estimate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// The slowest rank determines the time of a step, so one false alarm costs as much among 100,000 ranks as among two.
// The largest of n normal values grows with sqrt(2 ln n). Thresholds therefore grow with the number of ranks, and the
// noise of a rank of a large type moves towards that of its type. Few steps can show little noise by chance, and chance
// differences of a rank with little noise would be alarms.

// peers is what the number of ranks, and the other ranks of a large type, say about each rank.
type peers struct {
	// likelySigmas and sureSigmas for this number of ranks: about as many ranks exceed them by chance as of manyRanks
	likely, sure float64
	extreme      float64 // standard deviations by which chance explains more than among manyRanks; 0 for fewer ranks
	// mean of the logs of the true noise variances of the ranks, and the variance of these logs; NaN: unknown
	noise, spread float64
}

// newPeers returns the peers in a cluster with a number of ranks.
func newPeers(ranks int) *peers {
	more := 2 * math.Log(max(float64(ranks)/manyRanks, 1))
	return &peers{likely: math.Sqrt(likelySigmas*likelySigmas + more), sure: math.Sqrt(sureSigmas*sureSigmas + more),
		extreme: math.Sqrt(more), noise: math.NaN()}
}

// fewPeers are the peers of a rank in a small cluster.
var fewPeers = newPeers(1)

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

// poolNoise learns the noise of each large type from the noise of its ranks: the variances that the ranks show differ
// by chance and in truth.
func (t *deviceTypes) poolNoise(ranks []*posterior) {
	for g, p := range t.peers {
		if p == nil {
			continue
		}
		n := min(len(t.groups[g]), pooledRanks)
		logs, chance := make([]float64, 0, n), stat.Mean{}
		for i := range n {
			if e := ranks[t.groups[g][stat.Sample(i, len(t.groups[g]))]]; e.known {
				logs = append(logs, math.Log(max(e.own, leastVariance)))
				chance.Add(e.noiseError())
			}
		}
		if len(logs) == 0 {
			continue
		}
		middle, variance := robustVariance(logs)
		p.spread = max(variance-chance.Or(0), 0)
		p.noise = middle + chance.Or(0)/3 // the median of a variance is smaller than its mean
	}
}

// robustVariance returns the median and the variance of normal values, by the median absolute deviation.
func robustVariance(values []float64) (middle, variance float64) {
	middle = stat.Median(values)
	off := make([]float64, len(values))
	for i, v := range values {
		off[i] = math.Abs(v - middle)
	}
	return middle, stat.Square(stat.MADToSigma * stat.Median(off))
}

// noiseError returns the variance of the log of the variance that the steps of the rank show.
func (e *posterior) noiseError() float64 { return 2 * (e.weight - priorWeight) / (e.weight * e.weight) }

// useNoise sets the noise of the rank from its own steps and from its peers. A rank that is clearly noisier than its
// type keeps its own noise. A rank that seems to have less noise does not, because too little noise gives false alarms.
func (e *posterior) useNoise() {
	p := e.peers
	if e.noise = e.own; math.IsNaN(p.noise) {
		return
	}
	off, chance := math.Log(max(e.own, leastVariance))-p.noise, e.noiseError()
	spread, known := p.spread, 0.0
	if off > 0 {
		spread = max(spread, off*off-p.likely*p.likely*chance)
	}
	if spread > 0 {
		known = spread / (spread + chance)
	}
	e.noise = stat.Exp(p.noise + known*off)
}

// assumeNoise sets the noise of the ranks of each large type from the first step. One step does not distinguish noise
// from different levels, and equal devices are more probable. The next window distinguishes the two.
func (t *deviceTypes) assumeNoise(ranks []*posterior, window [][]float64) {
	for g, p := range t.peers {
		var logs []float64
		for _, r := range t.groups[g] {
			if p != nil && len(window[r]) == 1 {
				logs = append(logs, math.Log(window[r][0]))
			}
		}
		if len(logs) < 2 {
			continue
		}
		_, variance := robustVariance(logs)
		noise := max(variance, priorNoise*priorNoise)
		for _, r := range t.groups[g] {
			ranks[r].noise, ranks[r].own = noise, noise
		}
	}
}
