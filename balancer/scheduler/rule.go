package scheduler

import (
	"fmt"
	"math"
)

// Constants of policy rule.
const (
	// ruleAgeing is the waiting time that raises the score of a job by 1, the whole range of priorities. Its unit is
	// the mean running time of the jobs of the workload on their fastest GPUs. With a larger value, priorities have
	// more effect. With a smaller value, the order is closer to the order of arrival.
	ruleAgeing = 4
	// ruleOverdue is the score above which a job that does not fit blocks all jobs with lower scores. Otherwise, small
	// jobs could delay a large gang forever.
	ruleOverdue = 2
)

// rule starts the job with the highest score that fits. The job gets the free GPUs on which it is fastest, in the
// machine with the fewest free GPUs after the start (best fit). The score is the priority plus the waiting time divided
// by the ageing time.
type rule struct {
	placer
	ageing  float64 // seconds
	refused []bool  // by shape: its jobs do not fit
}

func (p *rule) Name() string { return "rule" }

func (p *rule) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	p.ageing = ruleAgeing * meanSeconds(c, w, s)
	return nil
}

// meanSeconds is the mean running time of jobs, each on its fastest type, without waiting; 1 if there are no jobs.
func meanSeconds(c *Cluster, w *Workload, s Speeds) float64 {
	total, n := 0.0, 0
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if best := fastestSpeed(c, j, s); best > 0 {
			total += j.Work / best
			n++
		}
	}
	if n == 0 {
		return 1
	}
	return total / float64(n)
}

// score returns the priority of a job plus its ageing since arrival.
func (p *rule) score(s *State, job int) float64 {
	j := &s.Workload.Jobs[job]
	return j.Priority + (s.Now-j.Arrival)/p.ageing
}

func (p *rule) Decide(s *State) Action {
	total := p.count(s)
	if total == 0 {
		return Action{}
	}
	p.refused = append(p.refused[:0], make([]bool, len(p.shapes.first))...)
	for {
		// The lowest key, minus the score, comes first. A job that does not fit and has a high score blocks the jobs
		// after it.
		best, block := ranked{math.Inf(1), -1}, ranked{math.Inf(1), -1}
		for _, q := range s.Queue {
			v := ranked{-p.score(s, q), q}
			if !p.refused[p.shapes.of[q]] {
				if best.job < 0 || v.before(best) {
					best = v
				}
			} else if -v.key >= ruleOverdue && (block.job < 0 || v.before(block)) {
				block = v
			}
		}
		if best.job < 0 || block.job >= 0 && block.before(best) {
			return Action{}
		}
		if gpus, speed, ok := p.fastest(s, best.job); ok {
			return p.start(s, best.job, -best.key, gpus, speed)
		}
		p.refused[p.shapes.of[best.job]] = true
	}
}

func (p *rule) start(s *State, job int, score float64, gpus []int, speed float64) Action {
	a := Action{Verb: Start, Job: job, GPUs: gpus}
	if p.explain {
		a.Reason = fmt.Sprintf(
			"the job has the highest score of the jobs that fit, %.2f (priority %.2f, waited %s); %s: %.4g steps/s",
			score, s.Workload.Jobs[job].Priority, seconds(s.Now-s.Workload.Jobs[job].Arrival),
			p.why(s, job, gpus, "the fastest free GPUs for it are "+s.types(gpus)), speed)
	}
	return a
}
