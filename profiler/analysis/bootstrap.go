package analysis

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// blockSteps is the number of consecutive steps that the bootstrap draws together. Neighbouring steps are correlated,
// for example because of a rebalance or a throttled core. Drawing single steps would therefore make the intervals too
// narrow.
const blockSteps = 10

// metric is an estimated quantity: the sum of numerators divided by the sum of denominators over the blocks of a run.
type metric int

const (
	throughput  metric = iota // samples / seconds
	utilization               // percent, mean over ranks and steps
	imbalance                 // 0…1, mean over steps
	waiting                   // 0…1, mean over steps
	oracle                    // 0…1, mean over decisions
	metrics
)

// block contains the sums over consecutive steps, or over one decision.
type block [metrics]struct{ sum, count float64 }

func (b *block) add(m metric, value, count float64) {
	if !math.IsNaN(value) {
		b[m].sum += value
		b[m].count += count
	}
}

// blocksOf divides steps into blocks. The last block may be shorter.
func blocksOf(steps []Step) []block {
	var blocks []block
	for part := range slices.Chunk(steps, blockSteps) {
		var b block
		for i := range part {
			step := &part[i]
			b.add(throughput, float64(step.Samples), step.Seconds)
			unequal, wait := step.imbalance()
			b.add(imbalance, unequal, 1)
			b.add(waiting, wait, 1)
			for _, rank := range step.Ranks {
				b.add(utilization, rank.Utilization, 1)
			}
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// blocksOfDecisions returns one block per decision. One decision per block is enough, because many steps lie between
// two decisions.
func blocksOfDecisions(decisions []Decision) []block {
	blocks := make([]block, len(decisions))
	for i, d := range decisions {
		blocks[i].add(oracle, d.ShareOfOracle, 1)
	}
	return blocks
}

// values contains one number per metric; NaN if unknown.
type values [metrics]float64

// mean returns, for each metric, the mean of the ratios of all runs.
func mean(runs [][]block) values {
	picked := make([][]*block, len(runs))
	for i, blocks := range runs {
		for j := range blocks {
			picked[i] = append(picked[i], &blocks[j])
		}
	}
	return meanOf(picked)
}

func meanOf(runs [][]*block) values {
	var total, counted values
	for _, blocks := range runs {
		var all block
		for _, b := range blocks {
			for m := range all {
				all[m].sum += b[m].sum
				all[m].count += b[m].count
			}
		}
		for m := range all {
			if all[m].count > 0 {
				total[m] += all[m].sum / all[m].count
				counted[m]++
			}
		}
	}
	for m := range total {
		total[m] /= counted[m] // 0/0 is NaN
	}
	return total
}

// replicate returns n bootstrap replicates. Each replicate draws runs, and blocks of each run, with replacement, as
// many as the original contains. Equal seeds and names give equal replicates, regardless of other computations.
func replicate(runs [][]block, n int, seed uint64, name string) []values {
	hash := fnv.New64a()
	hash.Write([]byte(name))
	random := rand.New(rand.NewPCG(seed, hash.Sum64()))
	out := make([]values, n)
	picked := make([][]*block, len(runs))
	for i := range out {
		for r := range picked {
			from := runs[random.IntN(len(runs))]
			picked[r] = picked[r][:0]
			for range from {
				picked[r] = append(picked[r], &from[random.IntN(len(from))])
			}
		}
		out[i] = meanOf(picked)
	}
	return out
}

// Estimate is a value with its confidence interval. All three numbers are NaN if the value is unknown.
type Estimate struct{ Value, Low, High float64 }

// Known reports whether the value is known.
func (e Estimate) Known() bool { return !math.IsNaN(e.Value) }

var noEstimate = Estimate{unknown, unknown, unknown}

// percentile returns value with the percentile interval of its replicates. confidence is between 0 and 1.
func percentile(value float64, replicates []float64, confidence float64) Estimate {
	known := slices.DeleteFunc(slices.Clone(replicates), math.IsNaN)
	if math.IsNaN(value) || len(known) == 0 {
		return noEstimate
	}
	slices.Sort(known)
	tail := (1 - confidence) / 2
	return Estimate{value, stat.Quantile(tail, stat.LinInterp, known, nil),
		stat.Quantile(1-tail, stat.LinInterp, known, nil)}
}

// column returns the values of one metric in all replicates.
func column(replicates []values, m metric) []float64 {
	out := make([]float64, len(replicates))
	for i, r := range replicates {
		out[i] = r[m]
	}
	return out
}

// ratio divides each element of the list above by the corresponding element of the list below.
func ratio(above, below []float64) []float64 {
	out := make([]float64, len(above))
	for i := range out {
		out[i] = above[i] / below[i]
	}
	return out
}
