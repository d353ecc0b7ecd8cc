package scheduler

import (
	"fmt"
	"math"
	"slices"
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
//
// The order of two jobs does not change while they wait, except by rounding errors of their scores. The list of waiting
// jobs has the scores at time 0 as keys. A decision computes the exact scores of the jobs that it considers.
type rule struct {
	placer
	ageing float64 // seconds
	queue  waiting // by minus the score at time 0
	batch  []ranked
}

func (p *rule) Name() string { return "rule" }

func (p *rule) Reset(c *Cluster, w *Workload, s Speeds) error {
	p.reset(c, w, s)
	p.ageing = ruleAgeing * meanSeconds(c, w, s)
	p.queue.reset(&p.shapes, false)
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
	if total == 0 || len(s.Queue) == 0 {
		return Action{}
	}
	p.queue.sync(s, func(job int) (float64, bool) {
		j := &s.Workload.Jobs[job]
		return j.Arrival/p.ageing - j.Priority, true
	})
	p.asked.begin()
	for p.queue.merge(); p.queue.more(); {
		for _, v := range p.next(s) {
			if speed, ok := p.ask(s, &p.index, &p.asked, v.job); ok {
				gpus, _, _ := p.fastest(s, v.job)
				return p.start(s, v.job, -v.key, gpus, speed)
			}
			if -v.key >= ruleOverdue { // blocks the jobs with lower scores
				return Action{}
			}
		}
	}
	return Action{}
}

// next returns jobs of the queue in the order of their scores, the highest first, with minus the score as key. It
// leaves out jobs of refused classes, unless their score makes them block other jobs. All later jobs have lower scores.
func (p *rule) next(s *State) []ranked {
	p.batch = p.batch[:0]
	age := s.Now / p.ageing
	// bound of the difference between a score that is computed from a key and the exact score; Priority is at most 1
	margin := func(key float64) float64 { return endPrecision * (math.Abs(key) + math.Abs(age) + 1) }
	latest := math.Inf(-1)
	for p.queue.more() {
		h := &p.queue.heads[0]
		if p.asked.none(h.class) && age-h.key+margin(h.key) < ruleOverdue {
			p.queue.skip()
			continue
		}
		if len(p.batch) > 0 && h.key-margin(h.key) > latest {
			break
		}
		latest = max(latest, h.key+margin(h.key))
		job := p.queue.next()
		p.batch = append(p.batch, ranked{-p.score(s, job), job})
	}
	slices.SortFunc(p.batch, func(a, b ranked) int {
		switch {
		case a.before(b):
			return -1
		case b.before(a):
			return 1
		}
		return 0
	})
	return p.batch
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
