package nccl

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Combination is a choice of algorithm, protocol and channels. "" and 0 leave the choice to NCCL.
type Combination struct {
	Algo     string `json:"algo"`
	Proto    string `json:"proto"`
	Channels int    `json:"channels"` // limits the number of thread blocks
}

func (c Combination) String() string {
	words := []string{cmp.Or(c.Algo, "any"), cmp.Or(c.Proto, "any")}
	if c.Channels > 0 {
		words = append(words, fmt.Sprintf("%d channels", c.Channels))
	}
	return strings.Join(words, ", ")
}

// Variables returns the variables of a combination, except for its channels. A variable with an empty value must be
// unset.
func (c Combination) Variables() map[string]string {
	return map[string]string{"NCCL_ALGO": c.Algo, "NCCL_PROTO": c.Proto}
}

// Combinations returns the combinations to try for all-reduce, NCCL's own choice first.
func Combinations(channels []int) []Combination {
	list := []Combination{{}}
	for _, n := range channels {
		if n > 0 {
			list = append(list, Combination{Channels: n})
		}
		for _, algo := range []string{"Ring", "Tree"} {
			for _, proto := range []string{"LL", "LL128", "Simple"} {
				list = append(list, Combination{algo, proto, n})
			}
		}
		list = append(list, Combination{"NVLS", "Simple", n}) // NVLS computes the sums within NVLink switches
	}
	return list
}

// Trial is the time of one combination for one size.
type Trial struct {
	Combination
	Bytes     int64   `json:"bytes"`
	Seconds   float64 `json:"seconds"` // time of the slowest rank
	BusGBytes float64 `json:"bus_gbytes_per_second"`
}

// Fastest returns the fastest trial of each size, ascending by size. Of equally fast trials, it returns the first one.
func Fastest(trials []Trial) (best []Trial) {
	for _, t := range trials {
		at := slices.IndexFunc(best, func(b Trial) bool { return b.Bytes == t.Bytes })
		switch {
		case at < 0:
			best = append(best, t)
		case t.Seconds < best[at].Seconds:
			best[at] = t
		}
	}
	slices.SortFunc(best, func(a, b Trial) int { return cmp.Compare(a.Bytes, b.Bytes) })
	return best
}

// worthwhile is the largest ratio to the time of NCCL's own choice at which a combination is recommended. Smaller gains
// are noise.
const worthwhile = 0.97

// Recommend returns the combination with the least total time over the sizes from `from` to `to`, in bytes. The caller
// passes the smallest and the largest size of a gradient bucket. It returns the zero combination (NCCL's own choice) if
// the gain is too small.
func Recommend(trials []Trial, from, to int64) (best Combination, gain float64) {
	type sum struct {
		seconds float64
		sizes   int
	}
	sums, order, most := map[Combination]sum{}, []Combination(nil), 0
	for _, t := range trials {
		if t.Bytes < from || t.Bytes > to {
			continue
		}
		if _, known := sums[t.Combination]; !known {
			order = append(order, t.Combination)
		}
		s := sums[t.Combination]
		sums[t.Combination] = sum{s.seconds + t.Seconds, s.sizes + 1}
		most = max(most, s.sizes+1)
	}
	own, measured := sums[Combination{}]
	if !measured || own.sizes < most {
		return Combination{}, 1
	}
	least := own.seconds
	for _, c := range order {
		if s := sums[c]; s.sizes == most && s.seconds < least {
			best, least = c, s.seconds
		}
	}
	if least > worthwhile*own.seconds {
		return Combination{}, 1
	}
	return best, own.seconds / least
}

// Table returns a combination as a [nccl] table.
func (c Combination) Table() string {
	var b strings.Builder
	b.WriteString("[nccl]\n")
	for _, line := range []struct{ key, value string }{{"algo", c.Algo}, {"proto", c.Proto}} {
		if line.value != "" {
			fmt.Fprintf(&b, "%s = %q\n", line.key, line.value)
		}
	}
	if c.Channels > 0 {
		fmt.Fprintf(&b, "max_ctas = %d\n", c.Channels)
	}
	return b.String()
}

// TunerCSV returns the fastest combination of each size in the format of NCCL's example tuner plugin. Each entry
// applies up to the geometric mean of its size and the next size.
func TunerCSV(best []Trial, nodes, ranks int) string {
	var b strings.Builder
	b.WriteString("# collective,min_bytes,max_bytes,algo,proto,channels,nNodes,nRanks,numPipeOps,regBuff\n")
	from := int64(0)
	for i, t := range best {
		to := int64(1) << 40
		if i+1 < len(best) {
			to = middle(t.Bytes, best[i+1].Bytes)
		}
		if t.Algo != "" && t.Proto != "" { // otherwise NCCL's own choice was fastest
			channels := t.Channels
			if channels == 0 {
				channels = -1
			}
			fmt.Fprintf(&b, "allreduce,%d,%d,%s,%s,%d,%d,%d,-1,-1\n", from, to-1, strings.ToLower(t.Algo),
				strings.ToLower(t.Proto), channels, nodes, ranks)
		}
		from = to
	}
	return b.String()
}

// middle returns the power of two that is nearest to the geometric mean of the numbers a and b.
func middle(a, b int64) int64 {
	m := a
	for m*m < a*b {
		m *= 2
	}
	return m
}

// Pair is a measurement between two ranks.
type Pair struct {
	Ranks          [2]int  `json:"ranks"`
	LatencySeconds float64 `json:"latency_seconds"` // latency of an all-reduce of one number
	BusGBytes      float64 `json:"bus_gbytes_per_second"`
}

// mostRanks is the size of the largest group in which every pair is measured. In larger groups, only the pairs of a
// ring are measured.
const mostRanks = 16

// Pairs returns the pairs of ranks to measure in a group of size ranks.
func Pairs(size int) (list [][2]int) {
	if size > mostRanks {
		for rank := range size {
			list = append(list, [2]int{min(rank, (rank+1)%size), max(rank, (rank+1)%size)})
		}
		return list
	}
	for a := range size {
		for b := a + 1; b < size; b++ {
			list = append(list, [2]int{a, b})
		}
	}
	return list
}

// A rank is slow if its bandwidth is below slowFraction of the median rank's bandwidth. The bandwidth of a rank is that
// of its best link.
const slowFraction = 0.7

// SlowRanks returns the ranks whose best link is far slower than the median rank's best link. A rank with a single slow
// link therefore does not count as slow.
func SlowRanks(size int, pairs []Pair) (slow []int) {
	best := make([]float64, size)
	for _, p := range pairs {
		for _, rank := range p.Ranks {
			best[rank] = max(best[rank], p.BusGBytes)
		}
	}
	whole := slices.Sorted(slices.Values(best))[size/2] // median; with two ranks, the bandwidth of the faster one
	for rank, b := range best {
		if b < slowFraction*whole {
			slow = append(slow, rank)
		}
	}
	return slow
}
