package estimate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// The slowest rank determines the time of a step, so one false alarm costs as much among 100,000 ranks as among two.
// The noise of the most extreme of n ranks grows with the square root of 2 ln n. Thresholds therefore grow with the
// number of ranks, and the noise of a rank of a large type moves towards that of its type.

// peers is what the number of ranks, and the other ranks of a large type, say about each rank.
type peers struct {
	likely, sure float64 // likelySigmas and sureSigmas for this number of ranks
	extreme      float64 // standard deviations that chance alone explains; 0 for at most manyRanks
	// mean of the logs of the noise variances of the ranks, and the variance of these logs in truth; NaN: unknown
	noise, spread float64
}

// newPeers returns the peers of a number of ranks. About as many of all ranks exceed a threshold by chance as of
// manyRanks.
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
		if len(group) <= largeType {
			continue
		}
		p := newPeers(len(m.ranks))
		m.types.peers[g] = p
		for _, r := range group {
			m.ranks[r].peers = p
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
		middle, off := stat.Median(logs), make([]float64, len(logs))
		for i, l := range logs {
			off[i] = math.Abs(l - middle)
		}
		p.spread = max(stat.Square(stat.MADToSigma*stat.Median(off))-chance.Or(0), 0)
		p.noise = middle + chance.Or(0)/3 // the median of a variance is smaller than its mean
	}
}

// noiseError returns the variance of the log of the variance that the steps of the rank show.
func (e *posterior) noiseError() float64 { return 2 * (e.weight - priorWeight) / (e.weight * e.weight) }

// useNoise sets the noise of the rank from its own steps and from its peers. A rank that is clearly more or less noisy
// than its type keeps its own noise.
func (e *posterior) useNoise() {
	p := e.peers
	if e.noise = e.own; p.noise != p.noise {
		return
	}
	off, chance := math.Log(max(e.own, leastVariance))-p.noise, e.noiseError()
	spread := max(p.spread, off*off-p.likely*p.likely*chance)
	known := 0.0
	if spread > 0 {
		known = spread / (spread + chance)
	}
	e.noise = stat.Exp(p.noise + known*off)
}

// assumeNoise sets the noise of the ranks of each large type from single steps. One step does not distinguish noise from
// different levels, and equal devices are more probable. The next window distinguishes the two.
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
		middle, off := stat.Median(logs), make([]float64, len(logs))
		for i, l := range logs {
			off[i] = math.Abs(l - middle)
		}
		noise := max(stat.Square(stat.MADToSigma*stat.Median(off)), priorNoise*priorNoise)
		for _, r := range t.groups[g] {
			ranks[r].noise, ranks[r].own = noise, noise
		}
	}
}
