package scheduler

import "fmt"

// gangMove is the fraction of its remaining time that a job must gain before it moves to other GPUs. With smaller
// values, jobs move more often for a smaller gain; predictions are not exact on real GPUs.
const gangMove = 0.1

// move stops the job that gains most time on free GPUs of another type, after subtraction of the time for its
// checkpoint. The job then starts there from the queue.
func (p *gang) move(s *State) Action {
	var best candidate
	for _, groups := range p.ends.bySize {
		for _, g := range groups {
			p.leaves(s, g, &best)
		}
	}
	if best.gain == 0 {
		return Action{}
	}
	a := Action{Verb: Stop, Job: s.Running[best.running].Job}
	if p.explain {
		a.Reason = fmt.Sprintf("no job waits, and it finishes %s earlier on free GPUs of type %s", seconds(best.gain),
			s.Cluster.Types[best.typ].Name)
	}
	return a
}

// candidate is a running job that may move. Of two with the same gain, the one that started first is better, then the
// lower type.
type candidate struct {
	gain    float64 // seconds; 0: no candidate
	running int     // index into State.Running
	typ     int
}

func (a candidate) better(b candidate) bool {
	if a.gain != b.gain || a.running != b.running {
		return a.gain > b.gain || a.gain == b.gain && a.running < b.running
	}
	return a.typ < b.typ
}

// leaves compares the jobs of a group with the best candidate. The longer a job still runs, the more it gains. It reads
// further jobs only if the longest ones lack CPU cores or memory, or would have to span machines.
func (p *gang) leaves(s *State, g *group, best *candidate) {
	class, n := p.shapes.class[g.shape], p.shapes.sizes[g.size]
	if !g.known {
		g.known = true
		for t := range s.Cluster.Types {
			packed, spread := p.shapes.speeds(class, t)
			if speed := max(packed, spread); speed*(1-gangMove)*(1+endPrecision) >= g.rate {
				g.targets = append(g.targets, target{t, speed})
			}
		}
	}
	kind := &s.Workload.Kinds[p.shapes.classes[class].kind]
	for _, t := range g.targets {
		at := g.jobs.last()
		x, ok := at.get()
		if p.free[t.typ] < n || g.stays(s, kind, x, t.speed, best) {
			continue
		}
		shape, speed := -1, 0.0
		for top := p.placer.index.top(s, class, t.typ); ok && !g.stays(s, kind, x, top, best); x, ok = at.get() {
			at.prev()
			if of := p.shapes.of[x.id]; of != shape {
				shape, speed = of, p.placer.index.speed(s, of, t.typ)
			}
			if speed == 0 {
				if p.shapes.classes[class].least.covers(p.shapes.need(x.id)) {
					break
				}
				continue
			}
			i := p.ends.find(s, x.id)
			r := &s.Running[i]
			// A job that started at this time stays: it could move between equally good GPUs forever, without time
			// passing. A job that has moved stays until it has computed for as long as it loaded: it could move
			// forever without progress, if the GPUs that it gets are never as fast as predicted.
			if r.Since >= s.Now || s.Now-r.Ready < r.Ready-r.Since {
				continue
			}
			now, v := g.gain(kind, s.Steps(r), speed)
			if c := (candidate{v, i, t.typ}); v > 0 && v > gangMove*now && c.better(*best) {
				*best = c
			}
		}
	}
}

// gain returns the seconds for which a job of the group computes its steps, and how much it gains on GPUs with another
// speed. It does not use the current speed: if the network limits the job here, it may also limit the job there, and
// the job would move forever.
func (g *group) gain(kind *Kind, steps, speed float64) (now, v float64) {
	now = steps / g.rate
	return now, now - kind.Save - kind.Load - steps/speed
}

// stays reports whether it is certain that neither the job of an item nor the jobs before it are better than the best
// candidate on GPUs with a speed.
func (g *group) stays(s *State, kind *Kind, x item, speed float64, best *candidate) bool {
	now, v := g.gain(kind, (x.key-s.Now+margin(x.key, s.Now))*g.speed, speed) // at most
	return v < max(best.gain, gangMove*now)-margin(now, s.Now)
}
