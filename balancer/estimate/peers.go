package estimate

import "math"

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

// manyRanks is the number of ranks up to which all thresholds are those of few ranks, and each curve is fitted in each
// window. Larger: a decision with many ranks takes longer.
const manyRanks = 64

// newPeers returns the peers in a cluster with a number of ranks.
func newPeers(ranks int) *peers {
	more := 2 * math.Log(max(float64(ranks)/manyRanks, 1))
	return &peers{likely: math.Sqrt(likelySigmas*likelySigmas + more), sure: math.Sqrt(sureSigmas*sureSigmas + more),
		extreme: math.Sqrt(more), noise: math.NaN()}
}

// fewPeers are the peers of a rank in a small cluster.
var fewPeers = newPeers(1)
