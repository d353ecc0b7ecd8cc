package balance

import (
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// timedPolicy measures the CPU time that a policy needs for its decisions. The time includes the work of the garbage
// collector during a decision.
type timedPolicy struct {
	balancer.Policy
	step  int // number of steps so far
	took  []time.Duration
	after []int // step of each decision
	err   error // error of the measurement
}

// Observe implements [balancer.Policy].
func (p *timedPolicy) Observe(s *balancer.Step) (*balancer.Decision, bool) {
	start := p.now()
	d, due := p.Policy.Observe(s)
	if p.step++; due {
		p.took, p.after = append(p.took, p.now()-start), append(p.after, p.step)
	}
	return d, due
}

// Memory implements [balancer.Sized]. It returns an empty list if the policy does not report its memory.
func (p *timedPolicy) Memory() []balancer.Memory {
	if sized, ok := p.Policy.(balancer.Sized); ok {
		return sized.Memory()
	}
	return nil
}

// now returns the CPU time of the process. Other programs influence the CPU time less than the elapsed time.
func (p *timedPolicy) now() time.Duration {
	spent, err := platform.ProcessTime()
	if err != nil {
		p.err = err
	}
	return spent
}

// decisionTimes describes the CPU times of all decisions, in seconds.
type decisionTimes struct {
	Count       int     `json:"count"`
	Median      float64 `json:"median_cpu_seconds"`
	Longest     float64 `json:"longest_cpu_seconds"`
	LongestStep int     `json:"longest_after_step"` // step after which the longest decision was made
}

// times returns the CPU times of the decisions, or nil if there was no decision.
func (p *timedPolicy) times() *decisionTimes {
	n := len(p.took)
	if n == 0 {
		return nil
	}
	longest := slices.Index(p.took, slices.Max(p.took))
	sorted := slices.Sorted(slices.Values(p.took))
	return &decisionTimes{Count: n, Median: ((sorted[(n-1)/2] + sorted[n/2]) / 2).Seconds(),
		Longest: p.took[longest].Seconds(), LongestStep: p.after[longest]}
}
