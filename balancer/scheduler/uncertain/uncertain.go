package uncertain

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// MostSigma is the largest error of estimates: two of three estimates are then within a factor of 150.
const MostSigma = 5

// Options of estimates. With the zero value, policies see the exact work of jobs that state no estimate.
type Options struct {
	Seed    uint64
	List    uint64  // number of the list of jobs, so that several lists with one seed have different errors
	Sigma   float64 // standard deviation of the logarithm of an estimate's error, 0 to MostSigma
	Drift   float64 // standard deviation over kinds of the logarithm of the systematic error at the end of the list
	History bool    // correct estimates by finished jobs of the same kind
	Running bool    // with History: also by jobs that have not finished, as censored values
}

// Check returns an error for invalid options.
func (o *Options) Check() error {
	for _, v := range []struct {
		name string
		is   float64
	}{{"error of estimates", o.Sigma}, {"drift of estimates", o.Drift}} {
		if !(v.is >= 0 && v.is <= MostSigma) {
			return fmt.Errorf("%s: got %v, want a number from 0 to %d", v.name, v.is, MostSigma)
		}
	}
	return nil
}

// exact reports whether all policies see the true work of a workload.
func (o *Options) exact(w *scheduler.Workload) bool {
	return o.Sigma == 0 && o.Drift == 0 && !slices.ContainsFunc(w.Jobs, func(j scheduler.Job) bool {
		return j.Estimate > 0 || j.Error > 0
	})
}

// Stated returns the stated estimates of all jobs, in steps. Equal seeds give equal estimates, and a job's random
// number does not depend on the options of other jobs.
func Stated(w *scheduler.Workload, o Options) []float64 {
	random := rand.New(rand.NewPCG(o.Seed^0x6572726f72, o.List)) // "error"
	drifts := rand.New(rand.NewPCG(o.Seed^0x6472696674, o.List)) // "drift"
	rates := make([]float64, len(w.Kinds))
	for k := range rates {
		rates[k] = o.Drift * drifts.NormFloat64()
	}
	out := make([]float64, len(w.Jobs))
	for i := range w.Jobs {
		j := &w.Jobs[i]
		z, sigma := random.NormFloat64(), o.Sigma
		if j.Error > 0 {
			sigma = j.Error
		}
		position := 0.0
		if len(w.Jobs) > 1 {
			position = float64(i) / float64(len(w.Jobs)-1)
		}
		switch wrong := sigma*z + rates[j.Kind]*position; {
		case j.Estimate > 0:
			out[i] = j.Estimate
		case wrong == 0:
			out[i] = j.Work
		default:
			out[i] = limited(j.Work * math.Exp(wrong))
		}
	}
	return out
}

// Hide returns a policy that sees estimates instead of the exact work. A workload whose estimates are exact passes
// unchanged. The result implements [scheduler.Waiter]; its method Unwrap returns p.
func Hide(p scheduler.Policy, o Options) scheduler.Policy { return &hidden{Policy: p, options: o} }

type hidden struct {
	scheduler.Policy
	options Options
	pass    bool // all estimates are exact

	work      *scheduler.Workload // the truth
	shown     scheduler.Workload  // Work is the estimate
	stated    []float64           // by job: steps
	remaining []float64           // by job: steps, by the estimate
	view      scheduler.State
	running   []scheduler.Running
	before    []int     // jobs that ran at the last decision
	runs      []bool    // by job: buffer, false between decisions
	kinds     []history // by kind
	arrived   int       // jobs that have an estimate from history
	open      begun     // buffer
}

// Unwrap returns the policy that sees the estimates.
func (p *hidden) Unwrap() scheduler.Policy { return p.Policy }

// Reset implements scheduler.Policy. A fault of the options is an error.
func (p *hidden) Reset(c *scheduler.Cluster, w *scheduler.Workload, s scheduler.Speeds) error {
	if err := p.options.Check(); err != nil {
		return err
	}
	if p.pass = p.options.exact(w); p.pass {
		return p.Policy.Reset(c, w, s)
	}
	p.work, p.stated = w, Stated(w, p.options)
	p.shown = scheduler.Workload{Kinds: w.Kinds, Jobs: slices.Clone(w.Jobs)}
	p.remaining, p.runs = make([]float64, len(w.Jobs)), make([]bool, len(w.Jobs))
	for i, steps := range p.stated {
		p.shown.Jobs[i].Work, p.shown.Jobs[i].Estimate, p.shown.Jobs[i].Error = steps, 0, 0
		p.remaining[i] = steps
	}
	p.before, p.kinds, p.arrived = p.before[:0], make([]history, len(w.Kinds)), 0
	return p.Policy.Reset(c, &p.shown, s)
}

// Incremental implements [scheduler.Incremental]. Reset must have been called: estimates that differ from the work are
// written into each state, which has to be complete then.
func (p *hidden) Incremental() bool {
	v, ok := p.Policy.(scheduler.Incremental)
	return p.pass && ok && v.Incremental()
}

// Decide implements scheduler.Policy.
func (p *hidden) Decide(s *scheduler.State) scheduler.Action {
	if p.pass {
		return p.Policy.Decide(s)
	}
	return p.Policy.Decide(p.see(s))
}

// Waits implements scheduler.Waiter.
func (p *hidden) Waits(s *scheduler.State, job int) string {
	if p.pass {
		return scheduler.WhyWaits(p.Policy, s, job)
	}
	return scheduler.WhyWaits(p.Policy, p.see(s), job)
}

// see returns the state with estimates. It is valid until the next call.
func (p *hidden) see(s *scheduler.State) *scheduler.State {
	for i := range s.Running {
		p.runs[s.Running[i].Job] = true
	}
	for _, job := range p.before {
		switch j := &p.work.Jobs[job]; {
		case p.runs[job]:
		case s.Remaining[job] > 0: // stopped or failed
			p.remaining[job] = p.left(job, s.Remaining[job])
		default:
			p.remaining[job], p.shown.Jobs[job].Work = 0, j.Work // a finished job shows its work
			p.kinds[j.Kind].add(j.Work, p.stated[job], j.GPUs)
		}
	}
	if p.options.History {
		for ; p.arrived < s.Arrived; p.arrived++ {
			j := &p.work.Jobs[p.arrived]
			var open *begun
			if p.options.Running {
				open = p.begun(s, j.Kind)
			}
			steps := p.kinds[j.Kind].estimate(p.stated[p.arrived], j.GPUs, open)
			p.shown.Jobs[p.arrived].Work, p.remaining[p.arrived] = steps, steps
		}
	}
	p.before, p.running = p.before[:0], append(p.running[:0], s.Running...)
	for i := range p.running {
		r := &p.running[i]
		estimate := p.shown.Jobs[r.Job].Work
		r.Remaining = p.left(r.Job, r.Remaining)
		if s.Journal != nil && p.shown.Jobs[r.Job].Work != estimate { // the predicted end of the job has changed
			s.Journal.Job(r.Job)
		}
		p.remaining[r.Job] = r.Remaining
		p.before, p.runs[r.Job] = append(p.before, r.Job), false
	}
	p.view = *s
	p.view.Workload, p.view.Remaining, p.view.Running = &p.shown, p.remaining, p.running
	return &p.view
}

// begun returns the jobs of a kind that have computed and have not finished. It is valid until the next call.
func (p *hidden) begun(s *scheduler.State, kind int) *begun {
	b := &p.open
	b.work, b.wrong = b.work[:0], b.wrong[:0]
	add := func(job int, remaining float64) {
		j := &p.work.Jobs[job]
		if done := j.Work - remaining; j.Kind == kind && done > 0 {
			b.work = append(b.work, math.Log(done/float64(j.GPUs)))
			b.wrong = append(b.wrong, math.Log(done/p.stated[job]))
		}
	}
	for i := range s.Running {
		add(s.Running[i].Job, s.Running[i].Remaining)
	}
	for _, job := range s.Queue {
		add(job, s.Remaining[job])
	}
	return b
}

// left returns the remaining steps of a job by its estimate, above 0. truth is the number of steps that really remain.
func (p *hidden) left(job int, truth float64) float64 {
	// A smaller remainder may be a rounding error, and its time would be too short for the clock of the simulator.
	const least = 1e-6
	steps, done := p.shown.Jobs[job].Work, p.work.Jobs[job].Work-truth
	for steps-done <= least*steps {
		steps *= 2
	}
	p.shown.Jobs[job].Work = steps
	return steps - done
}
