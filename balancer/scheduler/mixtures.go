package scheduler

import "slices"

// maxGangSets limits the cache of mixed sets that can be the best.
const maxGangSets = 1 << 14

// mixtures predicts the finish times on mixed sets of the idle GPUs of each type, and compares them with the best
// choice.
func (p *gang) mixtures(s *State, job, class int, idle []int, best *plan) {
	for _, set := range p.mixedSets(s, class, idle) {
		if finish := s.Now + s.Remaining[job]/set.speed; finish < best.finish {
			*best = plan{finish, s.Now, -1, set.speed, -1}
			copy(p.mix, set.counts)
		}
	}
}

// mixedSets returns the mixed sets of idle GPUs that can be the best for a class, by speed, the slowest first.
func (p *gang) mixedSets(s *State, class int, idle []int) []priced {
	k := &p.shapes.classes[class]
	types := 0
	for t := range idle {
		if idle[t] > 0 {
			types++
		}
	}
	if types < 2 {
		return nil
	}
	key := gangKey{kind: k.kind, gpus: k.gpus}
	for t := range idle {
		key.counts[t] = int32(min(k.gpus, idle[t]))
	}
	if p.latest[class].key != key {
		p.latest[class] = gangSets{key, p.setsOf(s, &key)}
	}
	return p.latest[class].sets
}

// setsOf returns the mixed sets that can be the best for a key.
func (p *gang) setsOf(s *State, key *gangKey) []priced {
	sets, known := p.sets[*key]
	if known {
		return sets
	}
	if len(p.sets) >= maxGangSets {
		clear(p.sets)
	}
	for t := range p.have {
		p.have[t] = int(key.counts[t])
	}
	clear(p.counts)
	sets = p.subsets(s, key.kind, 0, key.gpus, nil)
	p.sets[*key] = sets
	return sets
}

// subsets appends all sets of left GPUs among the types from typ on, together with p.counts, that are faster than all
// sets before them.
func (p *gang) subsets(s *State, kind, typ, left int, sets []priced) []priced {
	if typ == len(p.have)-1 {
		if left > p.have[typ] {
			return sets
		}
		p.counts[typ] = left
		sets = p.price(s, kind, sets)
		p.counts[typ] = 0
		return sets
	}
	for n := range min(left, p.have[typ]) + 1 {
		p.counts[typ] = n
		sets = p.subsets(s, kind, typ+1, left-n, sets)
	}
	p.counts[typ] = 0
	return sets
}

// price appends the mixed set p.counts if it is faster than the last one.
func (p *gang) price(s *State, kind int, sets []priced) []priced {
	types := 0
	key := gangKey{kind: kind}
	for t, n := range p.counts {
		key.counts[t] = int32(n)
		if n > 0 {
			types++
		}
	}
	if types < 2 {
		return sets
	}
	speed, known := p.prices[key]
	if !known {
		if v, ok := s.Speeds.Mixed(kind, p.counts, true); ok {
			speed = v
		}
		p.prices[key] = speed
	}
	if !(speed > 0) || len(sets) > 0 && speed <= sets[len(sets)-1].speed {
		return sets
	}
	return append(sets, priced{speed, slices.Clone(p.counts)})
}

// collect takes the mixed set p.mix from the free GPUs, machine by machine.
func (p *gang) collect(s *State, job int) []int {
	j := &s.Workload.Jobs[job]
	gpus := p.best[:0]
	copy(p.counts, p.mix)
	for m := range s.Cluster.Machines {
		n := min(Multiples(s.FreeCPUs[m], j.CPUs), Multiples(s.FreeMem[m], j.Memory))
		for _, g := range s.Cluster.Machines[m].GPUs {
			t := s.Cluster.GPUs[g].Type
			if n > 0 && p.counts[t] > 0 && p.isIdle(s, g) {
				gpus = append(gpus, g)
				p.counts[t]--
				n--
			}
		}
	}
	clear(p.counts)
	slices.Sort(gpus)
	return gpus
}
