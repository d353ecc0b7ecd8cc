package dqn

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/features"
)

// squash maps a time to a number between 0 and 1. For example, 0.1 units give 0.24, 1 unit gives 0.5, and 10 units give
// 0.76.
func (n *encoder) squash(seconds float64) float32 {
	root := math.Sqrt(max(0, seconds) / n.unit)
	return float32(root / (1 + root))
}

func fraction(x float64) float32 { return float32(x / (1 + x)) }

// choose selects the shown jobs, which actions can start.
func (n *encoder) choose(s *scheduler.State) {
	n.jobs = n.jobs[:0]
	rest := s.Queue
	for ; len(rest) > 0 && len(n.jobs) < n.Oldest; rest = rest[1:] {
		if n.startable(rest[0]) {
			n.jobs = append(n.jobs, rest[0])
		}
	}
	from := len(n.jobs)
	for _, job := range rest { // insert into the sorted shortest jobs; ties keep the order of arrival
		if !n.startable(job) {
			continue
		}
		t := s.Remaining[job] / n.best[job]
		at := len(n.jobs)
		for at > from && t < s.Remaining[n.jobs[at-1]]/n.best[n.jobs[at-1]] {
			at--
		}
		if at >= from+n.Shortest {
			continue
		}
		if len(n.jobs) < from+n.Shortest {
			n.jobs = append(n.jobs, 0)
		}
		copy(n.jobs[at+1:], n.jobs[at:len(n.jobs)-1])
		n.jobs[at] = job
	}
}

// startable reports whether a decision can start a job. This is so if GPUs of one type suffice, or if there is a
// baseline.
func (n *encoder) startable(job int) bool { return n.adviser != nil || !n.several[job] }

// watch updates the encoder with a state that needs no decision. The caller must pass each state of a run to watch or
// observe.
func (n *encoder) watch(s *scheduler.State) {
	if n.affinity != nil {
		n.affinity.Watch(s)
	}
}

// observe writes the observation of a state.
func (n *encoder) observe(s *scheduler.State, o *Observation) {
	clear(o.State)
	clear(o.Mask)
	n.watch(s)
	n.follow(s)
	n.choose(s)
	n.image(s, o.Image)
	n.facts(s, o.Facts)
	n.pairs(s, o)
	o.Mask[n.shape.Wait()] = canWait(s)
	if n.adviser != nil {
		n.advised(s, o)
	}
}

// idle returns the action of the baseline in a state in which no job waits. The action may stop a job to move it. Only
// the baseline may restart this job, because otherwise the baseline and the network could move it again and again.
func (n *encoder) idle(s *scheduler.State) scheduler.Action {
	n.watch(s)
	if n.adviser == nil {
		return scheduler.Action{}
	}
	a := n.adviser.Decide(s)
	if a.Verb == scheduler.Stop {
		n.moved[a.Job] = true
	}
	return a
}

// advised gets the action of the baseline, and writes the pair of this action.
func (n *encoder) advised(s *scheduler.State, o *Observation) {
	gpus := n.advice.GPUs
	n.advice = n.adviser.Decide(s)
	n.advice.GPUs = append(gpus[:0], n.advice.GPUs...)
	if n.advice.Verb != scheduler.Start { // no baseline stops a job while other jobs wait
		n.advice.Verb = scheduler.Wait
		return
	}
	action := n.shape.triples()
	o.Mask[action] = true
	p := o.Pairs[action*n.shape.Pair : (action+1)*n.shape.Pair]
	p[pairPossible], p[pairAdvised] = 1, 1
	a := &n.advice
	rate, _ := s.Fit(a.Job, a.GPUs)
	best := s.Remaining[a.Job] / n.best[a.Job]
	n.job(s, a.Job, p)
	p[pairOwn], p[pairPartner], p[pairUsable] = 1, 1, 1
	if n.cluster.Spread(a.GPUs) {
		p[pairSpread] = 1
	}
	if on := s.OnGPU[a.GPUs[0]]; len(on) > 0 {
		p[pairShare] = 1
		if alone := s.Rate(a.Job, a.GPUs, -1); alone > 0 {
			p[pairOwn] = float32(rate / alone)
		}
	}
	if rate > 0 {
		n.speed(s, a.Job, rate, p)
	}
	for _, job := range n.jobs {
		if s.Remaining[job]/n.best[job] < best {
			p[pairShorter] += 1 / float32(n.shape.Jobs)
		}
	}
	if n.affinity != nil {
		p[pairScore] = float32(n.affinity.Score(s, a.Job, a.GPUs[0]))
	}
}

// job writes the features of a pair that depend only on the job, except pairShorter.
func (n *encoder) job(s *scheduler.State, job int, p []float32) {
	j := &n.work.Jobs[job]
	p[pairBest] = n.squash(s.Remaining[job] / n.best[job])
	p[pairGPUs] = float32(float64(j.GPUs) / float64(max(1, n.up)))
	p[pairWaited], p[pairPriority] = n.squash(s.Now-j.Arrival), float32(j.Priority)
	p[pairClass+int(n.work.Kinds[j.Kind].Class)] = 1
	if n.ingested != nil {
		n.ingested.FillJob(p[pairNumbers:], p[pairNumbers+features.PerJob:], s, job)
	}
}

// speed writes the features of a pair that depend on the speed of the job on these GPUs.
func (n *encoder) speed(s *scheduler.State, job int, rate float64, p []float32) {
	t := s.Remaining[job] / rate
	p[pairTime], p[pairCost] = n.squash(t), n.squash(t*float64(n.work.Jobs[job].GPUs))
	p[pairSpeed] = float32(rate / n.best[job]) // above 1 if a mix of types is faster than each type alone
}

// canWait reports whether another event can occur, so that waiting makes sense.
func canWait(s *scheduler.State) bool {
	return len(s.Running) > 0 || s.Arrived < len(s.Workload.Jobs)
}

// image writes the matrix of GPUs. The available GPUs of a group are in the order of the time until they are free.
func (n *encoder) image(s *scheduler.State, image []float32) {
	clear(n.until)
	for i := range s.Running {
		r := &s.Running[i]
		t := s.Left(r)
		for _, gpu := range r.GPUs {
			n.until[gpu] = max(n.until[gpu], t)
		}
	}
	plane, slots := n.shape.Rows*n.shape.Slots, n.shape.Slots
	for i, g := range n.groups {
		n.free[i], n.ups[i] = 0, 0
		waits, order := n.waits[i*slots:(i+1)*slots], n.slotted[i*slots:(i+1)*slots]
		for _, gpu := range g.gpus {
			if !s.Up[gpu] {
				continue
			}
			at := n.ups[i] // insert into the sorted times
			for ; at > 0 && waits[at-1] > n.until[gpu]; at-- {
				waits[at] = waits[at-1]
				order[at] = order[at-1]
				image[imageBusy*plane+i*slots+at] = image[imageBusy*plane+i*slots+at-1]
			}
			waits[at], order[at] = n.until[gpu], gpu
			image[imageBusy*plane+i*slots+at] = float32(len(s.OnGPU[gpu])) / scheduler.MaxSharing
			n.ups[i]++
			if len(s.OnGPU[gpu]) == 0 {
				n.free[i]++
			}
		}
		for k := range n.ups[i] {
			at := i*slots + k
			image[WeightUp*plane+at] = 1
			image[WeightRow*plane+at] = 1 / float32(n.ups[i])
			image[WeightCluster*plane+at] = 1 / float32(n.up)
			image[imageUntil*plane+at] = n.squash(waits[k])
			image[imageSpeed*plane+at] = float32(n.mean[g.typ])
		}
	}
	if n.ingested != nil {
		n.ingest(s, image)
	}
}

// ingest writes the facts of package features about GPUs to the last channels of the image, in the same slots as the
// other channels.
func (n *encoder) ingest(s *scheduler.State, image []float32) {
	n.ingested.Fill(n.values, n.mask, s)
	plane := n.shape.Rows * n.shape.Slots
	for i := range n.groups {
		for k := range n.ups[i] {
			at := i*n.shape.Slots + k
			for f := range features.PerGPU {
				if f == features.PlaceUtilization && !n.Utilization ||
					f == features.PlaceTemperature && !n.Temperature {
					continue
				}
				from := features.PerCluster + n.place[n.slotted[at]]*features.PerGPU + f
				image[(imageChannels+f)*plane+at] = n.values[from]
				image[(imageChannels+features.PerGPU+f)*plane+at] = n.mask[from]
			}
		}
	}
}

func (n *encoder) facts(s *scheduler.State, facts []float32) {
	gpus, free := float64(max(1, n.up)), 0
	for _, f := range n.free {
		free += f
	}
	waiting := 0.0
	for _, job := range s.Queue {
		waiting += s.Remaining[job] / n.best[job] * float64(n.work.Jobs[job].GPUs)
	}
	facts[factQueue] = fraction(float64(len(s.Queue)) / gpus)
	facts[factRunning] = float32(float64(len(s.Running)) / gpus)
	facts[factFree] = float32(float64(free) / gpus)
	facts[factWork] = fraction(waiting / gpus / n.unit)
	if len(s.Queue) > 0 {
		facts[factHidden] = 1 - float32(len(n.jobs))/float32(len(s.Queue))
	}
	for slot, job := range n.jobs {
		j := &n.work.Jobs[job]
		class := n.work.Kinds[j.Kind].Class
		part := 1 / float32(len(n.jobs))
		facts[factMean] += float32(j.Priority) * part
		facts[factClass+int(class)] += part
		at := factJobs + slot*jobFacts
		facts[at], facts[at+1+int(class)] = float32(j.Priority), 1
	}
	if n.ingested != nil {
		at := facts[factJobs+n.shape.Jobs*jobFacts:]
		copy(at, n.values[:features.PerCluster])
		copy(at[features.PerCluster:], n.mask[:features.PerCluster])
	}
}

// spreads reports whether a gang would start on group i together with other groups of its type. There are two
// conditions. All groups of the type together have enough GPUs. No single group has enough, or the gang runs only on
// several machines.
func (n *encoder) spreads(i int, j *scheduler.Job) bool {
	t := n.groups[i].typ
	if n.usable[i] == 0 || n.total[t] < j.GPUs {
		return false
	}
	return n.most[t] < j.GPUs || n.apart(j, t) && n.total[t] > n.most[t]
}

// soon returns the time in seconds until a group has enough free GPUs for a gang. If the group has fewer GPUs than the
// gang, this is the time until all of them are free.
func (n *encoder) soon(i, gpus int) float64 {
	if n.ups[i] == 0 {
		return 0
	}
	return n.waits[i*n.shape.Slots+min(gpus, n.ups[i])-1]
}

func (n *encoder) pairs(s *scheduler.State, o *Observation) {
	rows := len(n.groups)
	n.relative()
	for slot, job := range n.jobs {
		j := &n.work.Jobs[job]
		n.room(s, j)
		best, shorter := s.Remaining[job]/n.best[job], 0
		for _, other := range n.jobs {
			if s.Remaining[other]/n.best[other] < best {
				shorter++
			}
		}
		same := n.same
		clear(same)
		n.job(s, job, same)
		same[pairShorter] = float32(shorter) / float32(n.shape.Jobs)
		for i := range rows {
			spread := n.spreads(i, j)
			possible := n.usable[i] >= j.GPUs || spread
			speed := n.speeds.Alone(j.Kind, n.groups[i].typ, j.GPUs, spread)
			possible = possible && speed > 0
			if possible && spread {
				gpus := n.gang(s, job, i)
				var why scheduler.Refusal
				speed, why = s.Fit(job, gpus)
				possible, spread = why == scheduler.Fits, n.cluster.Spread(gpus)
				n.room(s, j)
			}
			same[pairSoon] = n.squash(n.soon(i, j.GPUs))
			same[pairUsable] = min(1, float32(n.usable[i])/float32(j.GPUs))
			if n.affinity != nil {
				same[pairScore] = float32(n.affinity.Score(s, job, n.groups[i].gpus[0]))
			}
			for share := range n.shape.Ways {
				action := (slot*n.shape.Ways+share)*n.shape.Rows + i
				p := o.Pairs[action*n.shape.Pair : (action+1)*n.shape.Pair]
				copy(p, same)
				rate := speed
				if share == 0 {
					p[pairOwn], p[pairPartner] = 1, 1
					if spread {
						p[pairSpread] = 1
					}
				} else {
					p[pairShare] = 1
					rate = n.sharing(s, slot, i, p)
					possible = rate > 0
				}
				if rate > 0 {
					n.speed(s, job, rate, p)
					p[pairMargin] = p[pairSpeed] - float32(n.others(slot, i))
				}
				if possible && !n.moved[job] {
					p[pairPossible] = 1
					o.Mask[action] = true
				}
			}
		}
	}
}

// relative computes the speed of each shown job in each group, relative to the best type.
func (n *encoder) relative() {
	for slot, job := range n.jobs {
		j := &n.work.Jobs[job]
		for i, g := range n.groups {
			n.ratios[slot*len(n.groups)+i] = n.speeds.Alone(j.Kind, g.typ, j.GPUs, n.apart(j, g.typ)) / n.best[job]
		}
	}
}

// others returns the mean relative speed of the other shown jobs in a group.
func (n *encoder) others(slot, i int) float64 {
	sum := 0.0
	for other := range n.jobs {
		if other != slot {
			sum += n.ratios[other*len(n.groups)+i]
		}
	}
	return sum / float64(max(1, len(n.jobs)-1))
}

// sharing chooses the running job of a group with which a shown job would share GPUs. It returns the speed that the
// shown job would then have, or 0 if there is no such running job.
func (n *encoder) sharing(s *scheduler.State, slot, i int, p []float32) (rate float64) {
	at := slot*len(n.groups) + i
	n.partner[at] = -1
	job := n.jobs[slot]
	j := &n.work.Jobs[job]
	need, most := n.work.Kinds[j.Kind].GPUMemory, 1.0
	for k := range s.Running {
		r := &s.Running[k]
		g := n.groupOf[r.GPUs[0]]
		if r.Partner >= 0 || g != i || len(r.GPUs) != j.GPUs || len(s.OnGPU[r.GPUs[0]]) != 1 {
			continue
		}
		other := &n.work.Jobs[r.Job]
		if need+n.work.Kinds[other.Kind].GPUMemory > n.cluster.Types[n.groups[i].typ].Memory {
			continue
		}
		alone := n.speeds.Alone(j.Kind, n.groups[i].typ, j.GPUs, false)
		partner := n.speeds.Alone(other.Kind, n.groups[i].typ, j.GPUs, false)
		if !(alone > 0 && partner > 0) {
			continue
		}
		mine, ok := n.speeds.Shared(j.Kind, other.Kind, n.groups[i].typ, j.GPUs)
		theirs, fine := n.speeds.Shared(other.Kind, j.Kind, n.groups[i].typ, j.GPUs)
		if !ok || !fine {
			continue
		}
		gain := mine/alone + theirs/partner
		if !(gain > most) {
			continue
		}
		if speed, why := s.Fit(job, r.GPUs); why == scheduler.Fits {
			most, rate, n.partner[at] = gain, speed, k
			p[pairOwn], p[pairPartner], p[pairEnds] = float32(mine/alone), float32(theirs/partner), n.squash(s.Left(r))
		}
	}
	return rate
}
