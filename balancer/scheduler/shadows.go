package scheduler

import "slices"

// samples is the number of simulations of policy easy if estimates are inexact. With more, decisions take longer. With
// fewer, the second smallest of their longest waits differs more between draws.
const samples = 9

// shadows states the waits under policy easy. While all estimates are exact, it simulates policy easy once. Otherwise
// it simulates policy easy several times, each time with another draw of the work of jobs that have not finished.
//
// The first inexact estimate starts the other simulations. They repeat the time before, in which all GPUs are
// available to them. From then on, each decision reads all jobs that run in the simulations.
//
// In an overloaded cluster, the longest wait grows with the queue. While all estimates are exact, a copy of the
// simulation is therefore continued until all jobs of its queue have started, whenever the queue is more than a third
// longer than at the previous continuation. Later arrivals can hardly make the longest wait shorter. No continuation
// begins while a GPU is not available: the waits without this GPU would count for the rest of the run. With drawn work,
// a continuation makes the bound less reliable: the draws of all waiting jobs count at once.
type shadows struct {
	posterior posterior
	runs      [samples]shadow
	active    int              // simulations
	waits     [samples]float64 // buffer of wait

	ahead shadow    // a copy of the first simulation, for its continuation
	queue int       // jobs in the queue at the previous continuation
	ends  []float64 // by size: the longest wait of the continuations, in s
}

func (v *shadows) reset(c *Cluster, w *Workload, s Speeds) error {
	v.posterior.reset(len(w.Jobs))
	v.active, v.queue = 1, 0
	if err := v.ahead.reset(c, w, s, &v.posterior, 0); err != nil {
		return err
	}
	v.ends = make([]float64, len(v.ahead.longest))
	return v.runs[0].reset(c, w, s, &v.posterior, 0)
}

// follow advances to the time of the true state.
func (v *shadows) follow(s *State) {
	v.posterior.follow(s)
	first := &v.runs[0].state
	for ; v.posterior.inexact && v.active < samples; v.active++ {
		err := v.runs[v.active].reset(first.Cluster, first.Workload, first.Speeds, &v.posterior, uint64(v.active))
		if err != nil { // the reset of the first simulation had the same cluster and jobs
			panic(err)
		}
	}
	for i := range v.runs[:v.active] {
		v.runs[i].follow(s)
	}
	if n := len(first.Queue); !v.posterior.inexact && n > v.queue+v.queue/3 && !slices.Contains(first.Up, false) {
		v.queue = n
		v.ahead.empty(&v.runs[0], s)
		for size, wait := range v.ahead.longest {
			v.ends[size] = max(v.ends[size], wait)
		}
	}
}

// wait returns the longest wait under policy easy of a job with a number of GPUs, in s. The waits are those up to now,
// and those of the continuations. With several simulations, it returns the second smallest of their longest waits up to
// now. The longest wait under policy easy with the true work is then probably longer. With the smallest one, more jobs
// are overdue, and completion times are longer.
func (v *shadows) wait(size int) float64 {
	if !v.posterior.inexact {
		return max(v.runs[0].wait(size), v.ends[size])
	}
	waits := v.waits[:v.active]
	for i := range waits {
		waits[i] = v.runs[i].wait(size)
	}
	slices.Sort(waits)
	return waits[1]
}
