package scheduler

import "math"

// gangMargin is the number of seconds that a job must gain for each second that another job loses, before the two share
// GPUs. At 1, the sum of both completion times would be the same as without sharing.
const gangMargin = 2

// gangGain is the least sum of the speeds of two jobs that share GPUs, each relative to its speed without the other. At
// 1, the GPUs compute as much as with one job after the other. In a full cluster, pairs with a small gain are harmful:
// both jobs occupy the GPUs, so a shorter job that arrives cannot share them.
const gangGain = 1.2

// canShare reports whether jobs of a class can share GPUs with some job.
func (p *gang) canShare(s *State, class int) bool {
	is := &p.shares[class]
	if *is != sharingUnknown {
		return *is == sharingSometimes
	}
	*is = sharingNever
	k := &p.shapes.classes[class]
	for other := range s.Workload.Kinds {
		for t := range s.Cluster.Types {
			if speed, ok := s.Speeds.Shared(k.kind, other, t, k.gpus); ok && speed > 0 {
				*is = sharingSometimes
				return true
			}
		}
	}
	return false
}

// share predicts the finish time on the GPUs of running jobs, and compares it with the best choice. In a group, the
// gain is linear up to the job that ends when this job ends, and then constant. The loop reads all jobs of the constant
// part, and all jobs next to which this job does not fit: up to all running jobs for each job of the plan.
func (p *gang) share(s *State, job, size int, best *plan) {
	without, gain := best.finish, 0.0
	for _, g := range p.ends.bySize[size] {
		if g.partner >= 0 || g.typ < 0 {
			continue
		}
		pair := p.pair(s, g, job)
		if !pair.ok {
			continue
		}
		at, step := g.jobs.first(), (*cursor).next
		if pair.rises {
			at, step = g.jobs.last(), (*cursor).prev
		}
		for ; ; step(&at) {
			x, ok := at.get()
			if !ok {
				break
			}
			i := p.ends.find(s, x.id)
			r := &s.Running[i]
			steps := s.Steps(r)
			end, otherEnd := together(s.Remaining[job], pair.mine, pair.alone, steps, pair.other, r.Speed)
			loss := otherEnd - steps/r.Speed
			v := without - (s.Now + end) - gangMargin*loss
			if !math.IsInf(without, 1) && v < gain-margin(without+otherEnd+end, s.Now) {
				break
			}
			if !(v > gain || v == gain && best.shared >= 0 && i < best.shared) {
				continue
			}
			if _, why := s.Fit(job, r.GPUs); why == Fits {
				gain = v
				*best = plan{s.Now + end, s.Now, -1, pair.mine, i}
			}
		}
	}
}

// cannotPair is the pairing of jobs that cannot share GPUs.
var cannotPair pairing

// pair returns the speeds of a job on the GPUs of a job of a group. A group has a cache only if one of its answers is
// positive. Otherwise the caches of all groups would need a time and memory proportional to groups x kinds, also if no
// jobs can share GPUs: the jobs of `schedule advise` each have their own kind.
func (p *gang) pair(s *State, g *group, job int) *pairing {
	w := s.Workload
	kind := w.Jobs[job].Kind
	if g.pairing != nil && g.pairing[kind].known {
		return &g.pairing[kind]
	}
	other := g.jobs.at(0).id
	with := w.Jobs[other].Kind
	speed, ok := s.Speeds.Shared(kind, with, g.typ, w.Jobs[job].GPUs)
	ok = ok && speed > 0 && !(w.Kinds[kind].GPUMemory+w.Kinds[with].GPUMemory > s.Cluster.Types[g.typ].Memory)
	if !ok && g.pairing == nil {
		return &cannotPair
	}
	if g.pairing == nil {
		g.pairing = make([]pairing, len(w.Kinds))
	}
	v := &g.pairing[kind]
	if v.known = true; !ok {
		return v
	}
	// All GPUs that the jobs of the group use give the same speeds.
	gpus := s.Running[p.ends.find(s, other)].GPUs
	v.mine, v.alone, v.other = s.Rate(job, gpus, other), s.Rate(job, gpus, -1), s.Rate(other, gpus, job)
	// A job that does not run alone on these GPUs would have no speed after the end of its partner.
	v.ok = v.mine > 0 && v.alone > 0 && v.other > 0 && !(v.mine/v.alone+v.other/g.speed < gangGain)
	v.rises = (1-v.mine/v.alone)/v.other+gangMargin*(1/v.other-1/g.speed) < 0
	return v
}

// together returns the times in which two jobs end that share GPUs until the first one ends. Work is in steps. Speeds,
// in the pair and alone, are in steps/s.
func together(workA, pairA, aloneA, workB, pairB, aloneB float64) (endA, endB float64) {
	endA, endB = workA/pairA, workB/pairB
	if endA < endB {
		return endA, endA + (workB-pairB*endA)/aloneB
	}
	return endB + (workA-pairA*endB)/aloneA, endB
}
