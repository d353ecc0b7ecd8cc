package dqn

import (
	"math"
	"math/rand/v2"
)

// twoGPUs is a problem whose optimum dynamic programming can find. All jobs wait at the start. GPU 0 is faster for some
// kinds, and GPU 1 for other kinds. The cost is the sum of the completion times, plus the factor idle times the seconds
// of idle GPUs.
type twoGPUs struct {
	jobs int
	work []int // seconds on GPU 0, by job, drawn from the seed
	slow []int // seconds on GPU 1
	left uint  // bit set of the waiting jobs
	busy [2]int
}

const twoLambda = 0.25

// twoScale is the unit of rewards, in seconds. It makes rewards about 1.
const twoScale = 10

func (e *twoGPUs) Shape() Shape {
	return Shape{Channels: Weights + 3, Rows: 2, Slots: 1, Facts: 3 + 2*e.jobs, Jobs: e.jobs, Ways: 1, Pair: 4}
}

func (e *twoGPUs) Reset(seed uint64) error {
	random := rand.New(rand.NewPCG(seed, 1))
	e.work, e.slow = make([]int, e.jobs), make([]int, e.jobs)
	for j := range e.jobs {
		e.work[j] = 1 + random.IntN(6)
		e.slow[j] = e.work[j] * (1 + random.IntN(3))
	}
	e.left, e.busy = 1<<e.jobs-1, [2]int{}
	return nil
}

func (e *twoGPUs) time(job, gpu int) int {
	if gpu == 0 {
		return e.work[job]
	}
	return e.slow[job]
}

func (e *twoGPUs) waits(job int) bool { return e.left>>job&1 != 0 }

func (e *twoGPUs) Observe(o *Observation) {
	clear(o.State)
	clear(o.Mask)
	n := 0
	for g := range 2 {
		for channel, v := range []float32{1, 1, 0.5, float32(min(e.busy[g], 1)), float32(e.busy[g]) / twoScale,
			float32(g)} {
			o.Image[2*channel+g] = v
		}
		o.Facts[1+2*e.jobs+g] = float32(e.busy[g]) / twoScale
	}
	for j := range e.jobs {
		if !e.waits(j) {
			continue
		}
		n++
		o.Facts[1+2*j], o.Facts[2+2*j] = float32(e.work[j])/twoScale, float32(e.slow[j])/twoScale
		for g := range 2 {
			pair := o.Pairs[(2*j+g)*4:]
			pair[0], pair[1] = 1, float32(e.time(j, g))/twoScale
			pair[2], pair[3] = float32(e.time(j, g)-e.time(j, 1-g))/twoScale, float32(g)
			o.Mask[2*j+g] = e.busy[g] == 0
		}
	}
	o.Facts[0] = float32(n) / float32(e.jobs)
	o.Mask[2*e.jobs] = e.busy[0]+e.busy[1] > 0
}

// Step returns the reward: minus (jobs in the system + lambda times idle GPUs) times seconds.
func (e *twoGPUs) Step(action int) (Outcome, error) {
	out := Outcome{Discount: 1}
	if action < 2*e.jobs {
		e.left &^= 1 << (action / 2)
		e.busy[action%2] = e.time(action/2, action%2)
	}
	for e.busy[0]+e.busy[1] > 0 && (action == 2*e.jobs || e.left == 0 || e.busy[0]*e.busy[1] > 0) {
		out.Reward -= e.cost() / twoScale
		waited := e.step()
		if waited && e.left != 0 {
			break
		}
	}
	out.Done = e.left == 0 && e.busy[0]+e.busy[1] == 0
	return out, nil
}

// cost is the cost of the next second.
func (e *twoGPUs) cost() float64 {
	cost := 0.0
	for j := range e.jobs {
		if e.waits(j) {
			cost++
		}
	}
	for _, b := range e.busy {
		if b > 0 {
			cost++
		} else {
			cost += twoLambda
		}
	}
	return cost
}

// step advances one second, and reports whether a job ended.
func (e *twoGPUs) step() bool {
	ended := false
	for g := range e.busy {
		if e.busy[g] > 0 {
			e.busy[g]--
			ended = ended || e.busy[g] == 0
		}
	}
	return ended
}

// optimum returns the largest sum of rewards from the current state on, by dynamic programming. Its states are the set
// of waiting jobs and the times until the GPUs are free.
func (e *twoGPUs) optimum() float64 {
	type state struct {
		left uint
		busy [2]int
	}
	known := map[state]float64{}
	var value func(e twoGPUs) float64
	value = func(e twoGPUs) float64 {
		at := state{e.left, e.busy}
		if v, ok := known[at]; ok {
			return v
		}
		o := NewObservation(e.Shape())
		e.Observe(o)
		most := math.Inf(-1)
		for a, ok := range o.Mask {
			if !ok {
				continue
			}
			next := e
			out, _ := next.Step(a)
			v := out.Reward
			if !out.Done {
				v += value(next)
			}
			most = max(most, v)
		}
		known[at] = most
		return most
	}
	return value(*e)
}
