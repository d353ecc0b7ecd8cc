package bench

import (
	"fmt"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/engine/timeline"
)

// Parameters of GPUUse: the minimum duration of a listed gap, and the maximum lengths of the lists of gaps and kernels.
const (
	shortestGap = 5 * time.Microsecond
	mostGaps    = 10
	mostKernels = 10
)

// GPUUse describes the use of a GPU during several steps, for JSON.
type GPUUse struct {
	Steps int `json:"steps"`
	// mean step time, from the start of the first step to the end of the last step
	Seconds float64 `json:"step_seconds"`
	Busy    float64 `json:"busy_share"`
	Copies  float64 `json:"copy_share"`    // fraction of the time in which the GPU only copies
	Gaps    float64 `json:"gaps_per_step"` // number of gaps of at least gap_limit_seconds per step
	// number of these gaps per step that are neither at its start nor at its end
	Within    float64     `json:"gaps_within_step"`
	GapTime   float64     `json:"gap_share"`       // fraction of the time that these gaps take
	ShortTime float64     `json:"short_gap_share"` // fraction of the time that shorter gaps take
	Limit     float64     `json:"gap_limit_seconds"`
	Longest   []gpuGap    `json:"longest_gaps"`
	Kernels   []GPUKernel `json:"kernels"`
	Waits     []gpuWait   `json:"host_waits"`
	Lost      int64       `json:"lost_records"`
}

type gpuGap struct {
	Seconds float64 `json:"seconds"`
	At      float64 `json:"at_seconds"` // start of the gap, in seconds after the start of the first step
	After   string  `json:"after"`
	Before  string  `json:"before"`
	Between bool    `json:"between_steps"`
}

type GPUKernel struct {
	Name     string  `json:"name"`
	Op       string  `json:"op,omitempty"`
	Count    float64 `json:"per_step"`
	Seconds  float64 `json:"step_seconds"`
	Fraction float64 `json:"share"`
}

type gpuWait struct {
	Call    string  `json:"call"`
	Count   float64 `json:"per_step"`
	Within  float64 `json:"within_step"` // number of waits of the host that are followed by more work of the same step
	Seconds float64 `json:"step_seconds"`
}

// gpuUseOf computes the use of a GPU. It returns nil if the device recorded no activity.
func gpuUseOf(spans []timeline.Span, lost int64) *GPUUse {
	u := timeline.UseOf(spans)
	if u == nil {
		return nil
	}
	steps := float64(u.Steps)
	fraction := func(ns int64) float64 { return float64(ns) / float64(u.Window) }
	each := func(ns int64) float64 { return float64(ns) / 1e9 / steps }
	g := &GPUUse{Steps: u.Steps, Seconds: each(u.Window), Busy: fraction(u.Busy), Copies: fraction(u.Copies),
		Limit: shortestGap.Seconds(), Lost: lost,
		Longest: []gpuGap{}, Kernels: []GPUKernel{}, Waits: []gpuWait{}}
	for _, gap := range u.Gaps {
		if gap.Took < int64(shortestGap) {
			g.ShortTime += fraction(gap.Took)
			continue
		}
		g.Gaps += 1 / steps
		g.GapTime += fraction(gap.Took)
		if !gap.Steps {
			g.Within += 1 / steps
		}
		if len(g.Longest) < mostGaps {
			g.Longest = append(g.Longest, gpuGap{float64(gap.Took) / 1e9, float64(gap.Begin-u.Begin) / 1e9, gap.After,
				gap.Before, gap.Steps})
		}
	}
	for _, k := range u.Code[:min(mostKernels, len(u.Code))] {
		g.Kernels = append(g.Kernels, GPUKernel{k.Name, k.Op, float64(k.Count) / steps, each(k.Took), fraction(k.Took)})
	}
	for _, w := range u.Host {
		g.Waits = append(g.Waits, gpuWait{w.Name, float64(w.Count) / steps, float64(w.Within) / steps, each(w.Took)})
	}
	return g
}

// String formats the summary for a terminal.
func (g *GPUUse) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "GPU busy %.2f %% of the time (copies without kernels: %.2f %%) | idle gaps of at least %v: %.1f per step, %.1f of these within the step, %.2f %% of the time | shorter gaps: %.2f %% of the time\n",
		100*g.Busy, 100*g.Copies, shortestGap, g.Gaps, g.Within, 100*g.GapTime, 100*g.ShortTime)
	for _, gap := range g.Longest[:min(3, len(g.Longest))] {
		where := "within a step"
		if gap.Between {
			where = "between steps"
		}
		fmt.Fprintf(&b, "  idle %.1f us %s: after %s, before %s\n", 1e6*gap.Seconds, where, gap.After, gap.Before)
	}
	for _, w := range g.Waits {
		fmt.Fprintf(&b, "  the host waits in %s %.1f times per step, %.1f of these before it has enqueued all work\n",
			w.Call, w.Count, w.Within)
	}
	for _, k := range g.Kernels {
		fmt.Fprintf(&b, "  %5.2f %%  %6.1f per step  %s\n", 100*k.Fraction, k.Count, k.Name)
	}
	if g.Lost > 0 {
		fmt.Fprintf(&b, "  %d records were lost, so these figures are too low\n", g.Lost)
	}
	return b.String()
}
