package bench

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hetero-train/hetero-train/profiler/stats"
)

const (
	kneeFraction = 0.95 // fraction of the best throughput that the batch size at the knee must reach

	// The batch size doubles until this many sizes in a row are not faster than the best one by more than
	// gainOfADoubling. With a smaller value, one disturbed measurement would end the sweep. With a larger value, the
	// sweep would measure more sizes than needed.
	sizesWithoutGain = 2
	gainOfADoubling  = 0.02

	longestStep = 10.0 // s; no larger batch size follows after a step of this duration
)

// curve contains the measurements with one precision and one number of threads.
type curve struct {
	asked   string // value of --precision
	threads int    // value of --threads

	Precision    string `json:"precision"`
	Threads      int    `json:"threads"`
	MemoryBytes  int64  `json:"memory_bytes"`  // memory that a training run may use
	LargestBatch int    `json:"largest_batch"` // largest batch size whose planned memory fits in MemoryBytes
	Best         int    `json:"best_batch"`    // batch size with the best throughput
	Knee         int    `json:"knee_batch"`    // smallest batch size with kneeFraction of the best throughput
	// reason why no larger batch size was measured; "" if all given sizes were measured
	End     string   `json:"end"`
	Skipped []int    `json:"skipped"` // given batch sizes that do not fit in memory
	Points  []*point `json:"points"`  // points in ascending order of the batch size
}

// point contains the measurements of one batch size. Each round has a median step time. The spread is the range of
// these medians.
type point struct {
	Batch     int     `json:"batch_size"`
	Seconds   float64 `json:"step_seconds"`      // median time of all steps
	Low       float64 `json:"step_seconds_low"`  // median time of the fastest round
	High      float64 `json:"step_seconds_high"` // median time of the slowest round
	Rate      float64 `json:"samples_per_second"`
	Tokens    float64 `json:"tokens_per_second,omitempty"`
	Steps     int     `json:"steps"`
	Rounds    int     `json:"rounds"`
	PeakBytes int64   `json:"peak_memory_bytes"` // largest memory of the device that the program allocated

	took []float64 // times of all steps in seconds
}

// add adds the times of the steps of one round.
func (p *point) add(took []float64) {
	median := stats.Median(took)
	if p.Rounds == 0 {
		p.Low, p.High = median, median
	}
	p.took = append(p.took, took...)
	p.Low, p.High, p.Seconds = min(p.Low, median), max(p.High, median), stats.Median(p.took)
	p.Rate, p.Steps, p.Rounds = float64(p.Batch)/p.Seconds, len(p.took), p.Rounds+1
}

func (c *curve) name() string {
	if c.Threads == 0 { // a GPU
		return c.Precision
	}
	return fmt.Sprintf("%s, %d threads", c.Precision, c.Threads)
}

// over returns the reason why no larger batch size needs a measurement. It returns "" if there is none.
func (c *curve) over() string {
	last := c.Points[len(c.Points)-1]
	if last.Seconds > longestStep {
		return fmt.Sprintf("a step takes longer than %.0f s", longestStep)
	}
	if len(c.Points) <= sizesWithoutGain {
		return ""
	}
	before := best(c.Points[:len(c.Points)-sizesWithoutGain])
	if best(c.Points).Rate > (1+gainOfADoubling)*before.Rate {
		return ""
	}
	return "throughput does not grow any more"
}

// best returns the point with the best throughput. Of points with equal throughput, it returns the smallest batch.
func best(points []*point) *point {
	return slices.MaxFunc(points, func(a, b *point) int {
		switch {
		case a.Rate < b.Rate || a.Rate == b.Rate && a.Batch > b.Batch:
			return -1
		case a.Rate > b.Rate || a.Rate == b.Rate && a.Batch < b.Batch:
			return 1
		}
		return 0
	})
}

// noisy is the ratio of the slowest round to the fastest round above which the table says that the measurements are
// disturbed.
const noisy = 1.2

// noisiest returns the point whose rounds differ most.
func (c *curve) noisiest() *point {
	return slices.MaxFunc(c.Points, func(a, b *point) int { return cmp.Compare(a.High/a.Low, b.High/b.Low) })
}

// conclude computes the knee and the best batch size.
func (c *curve) conclude() {
	most := best(c.Points)
	c.Best = most.Batch
	for _, p := range c.Points {
		if p.Rate >= kneeFraction*most.Rate {
			c.Knee = p.Batch
			return
		}
	}
}
