package gradsync

import (
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/engine/plan"
)

// Bucket is a range of the flat gradient buffer that one all-reduce sums.
type Bucket struct {
	Offset, Bytes int64    // includes padding between parameters, which is zero on every rank
	Params        []string // names of parameters, in the order in which the backward pass completes their gradients
}

// ends returns the possible ends of buckets: the end of each parameter that has a gradient.
func ends(p *plan.Params) []int64 {
	out := make([]int64, p.Trained)
	for i := range out {
		if i+1 < len(p.Params) {
			out[i] = p.Params[i+1].Offset
		} else {
			out[i] = p.Bytes
		}
	}
	return out
}

// ByCap ends a bucket where the next parameter would make it larger than capBytes. The first bucket is limited to
// firstBytes, so that communication starts early. A larger parameter has its own bucket. ByCap returns the ends of
// buckets in bytes from the start of the gradient buffer.
func ByCap(p *plan.Params, firstBytes, capBytes int64) []int64 {
	var out []int64
	begin, limit, last := int64(0), min(firstBytes, capBytes), int64(0)
	for _, end := range ends(p) {
		if end-begin > limit && last > begin {
			out = append(out, last)
			begin, limit = last, capBytes
		}
		last = end
	}
	if last > begin {
		out = append(out, last)
	}
	return out
}

// Link is the cost model of an all-reduce.
type Link struct {
	LatencySeconds float64 // time of an empty all-reduce
	BytesPerSecond float64 // rate of a large all-reduce, in bytes of the buffer, not of the wire
}

// Choose returns the ends of the buckets with which the last all-reduce ends earliest.
//
//	ends[i]          end of gradient i in bytes, ascending
//	readySeconds[i]  time from the start of the backward pass to gradient i, ascending
//
// An all-reduce starts when the last gradient of its bucket is ready and the previous all-reduce has ended. The
// parameter link gives the time of an all-reduce. Among equal results, Choose prefers the fewest buckets. Its time is
// quadratic in the number of gradients.
func Choose(ends []int64, readySeconds []float64, link Link) []int64 {
	n := len(ends)
	over := make([]float64, n+1) // earliest end of the all-reduces of the first i gradients
	count := make([]int, n+1)    // number of buckets with that end
	from := make([]int, n+1)     // start of the last bucket
	for i := 1; i <= n; i++ {
		for j := range i {
			begin := int64(0)
			if j > 0 {
				begin = ends[j-1]
			}
			t := max(over[j], readySeconds[i-1]) + link.LatencySeconds + float64(ends[i-1]-begin)/link.BytesPerSecond
			if j == 0 || t < over[i] || t == over[i] && count[j]+1 < count[i] {
				over[i], count[i], from[i] = t, count[j]+1, j
			}
		}
	}
	out := make([]int64, count[n])
	for i, k := n, count[n]; k > 0; k-- {
		out[k-1] = ends[i-1]
		i = from[i]
	}
	return out
}

// buckets returns the ranges between ends.
func buckets(p *plan.Params, ends []int64) []Bucket {
	var out []Bucket
	begin, at := int64(0), 0
	for _, end := range ends {
		b := Bucket{Offset: begin, Bytes: end - begin}
		for ; at < len(p.Params) && p.Params[at].Offset < end; at++ {
			b.Params = append(b.Params, p.Params[at].Name)
		}
		out = append(out, b)
		begin = end
	}
	return out
}

// checkEnds returns an error unless got contains ends of parameters in ascending order and covers all gradients.
func checkEnds(p *plan.Params, got []int64) error {
	possible := ends(p)
	for i, end := range got {
		if !slices.Contains(possible, end) || i > 0 && end <= got[i-1] {
			return fmt.Errorf("bucket %d: got its end at byte %d, want ascending ends of parameters", i, end)
		}
	}
	if n := len(possible); n > 0 && (len(got) == 0 || got[len(got)-1] != possible[n-1]) {
		return fmt.Errorf("buckets: got ends %v, want the last one at byte %d", got, possible[n-1])
	}
	return nil
}
