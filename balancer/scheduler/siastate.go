package scheduler

import "math"

// Constants of policy sia: the defaults of Sia's published simulator (github.com/siasosp23/artifacts,
// sia-simulator/simulator_config.py and sia.py).
const (
	// siaRound is the length of a round in seconds. At the start of a round, jobs may be stopped and started.
	siaRound = 60
	// siaPower is the fairness power p. With a smaller power, the value grows less with a goodput that is
	// already high.
	siaPower = -0.5
	// siaIncentive is the allocation incentive lambda, the value of any GPUs for a job. It is above 1, the largest
	// possible cost of an allocation that needs no restart, so GPUs are never idle while a job can use them.
	siaIncentive = 1.1
	// siaStay is the additional value of the GPUs that a job has. Of equal allocations, it selects the one with the
	// fewest stops. It is larger than packingRounding and smaller than differences between goodputs.
	siaStay = 1e-6
)

// siaTries is the number of integer programs of a round. With fewer, more rounds stop no job on fragmented clusters.
const siaTries = 8

// siaLongest is the longest job in seconds on its fastest GPUs, 4.7 years: as maxminLongest, for shorter rounds.
const siaLongest = 1.5e8

// sia is the integer program of Sia (Jayaram Subramanya et al., Sia: Heterogeneity-aware, Goodput-optimized ML-cluster
// Scheduling, SOSP 2023) for rigid jobs. In each round, it gives each job at most one configuration, so that the sum of
// the values is largest:
//
//	value = lambda - G^p, with p = -0.5 and lambda = 1.1
//
// G is the normalised goodput: the speed of the job on GPUs of a type, relative to its slowest type, times its number
// of GPUs. For a job that runs, G is multiplied by a restart factor on all types but its own:
//
//	r = (T - N*S) / (T + S)
//
// T is the age of the job in s, and N the number of times that the policy has stopped it. S is the restart penalty in
// s: the times to save and to load a checkpoint. As in Sia, r is 1 until a job has run for S, and a job that loads its
// checkpoint keeps its GPUs. [packing] solves the integer program.
//
// # Which part of Sia this is
//
//   - Jobs are rigid: each has a fixed number of GPUs and a fixed batch. Its goodput is its speed, and its
//     configurations differ only in the type of GPU. Sia's jobs may also change both numbers.
//   - The speeds are those of [Speeds]. Sia estimates them while the job runs.
//   - The constraints of the integer program count GPUs of each type, as in Sia. Machines, CPU cores and memory are not
//     part of it. Sia's placement never splits a job that fits on one machine, and evicts jobs if necessary. This
//     policy places jobs by [State.Place]: on one machine if possible, otherwise on several. It evicts no job. Before
//     it stops a job, it tries all starts of the round on a copy of the state. If a start has no room, it solves the
//     integer program again without it. After siaTries attempts, the round stops no job. The trial places the starts in
//     the order of arrival, so the result is not always optimal.
//   - Between two rounds, Sia changes nothing. This policy gives GPUs that become free to waiting jobs, by the same
//     integer program without the running jobs.
//   - A job that does not fit on GPUs of one type is not part of the program. It runs on free GPUs of any types, and is
//     never stopped.
//
// The policy uses neither the work of a job nor its remaining time, and nothing raises the value of a job that waits.
// Sia starts each job on one GPU. Here, large gangs may wait for as long as small jobs use all GPUs. The reason is that
// 8 jobs of one GPU have a greater sum of values than one job of 8 GPUs.
type sia struct {
	placer
	keep     bool // never stop a running job
	program  packing
	goodput  []float64 // by shape and type: G without the restart factor; 0: does not run there
	groups   []siaGroup
	listed   []int       // by shape: 1 + its group of waiting jobs; 0 between calls
	size     []int       // by type: GPUs of the integer program
	types    []int       // buffer
	starts   []siaStart  // in the order of arrival
	stopping []int       // running jobs that are yet to be stopped
	moves    map[int]int // by job of stopping: the type that it gets instead, or -1
	stops    []int       // by job: times that the policy has stopped it
	round    float64     // seconds: start of the next round
	costless bool        // no restart takes time, so the values do not change with time
	carried  []siaStart  // moves of earlier rounds whose jobs still save their checkpoints
	trial    siaTrial
	last     []int // state at the start of the round, for equal
	now      []int // buffer
	gaps     Gaps
}

// Gaps describes the optimization problems of a run.
type Gaps struct {
	Problems int
	Cut      int     // problems whose search reached its limit
	Largest  float64 // difference of the upper bound and the value of a solution, relative to the bound
}

// siaGroup is a group of the integer program.
type siaGroup struct {
	jobs []int    // in the order of arrival
	runs *Running // of a running job; nil: the jobs wait
}

// row returns the goodput of a job by type, without the restart factor.
func (p *sia) row(job int) []float64 {
	types := len(p.size)
	shape := p.shapes.of[job]
	return p.goodput[shape*types : (shape+1)*types]
}

// worth is the value of GPUs with a goodput for a job.
func worth(goodput float64) float64 {
	if !(goodput > 0) {
		return 0
	}
	return siaIncentive - math.Pow(goodput, siaPower)
}

// factor returns the restart factor of a running job.
func (p *sia) factor(s *State, r *Running) float64 {
	kind := &s.Workload.Kinds[s.Workload.Jobs[r.Job].Kind]
	penalty, age := kind.Save+kind.Load, s.Now-s.Workload.Jobs[r.Job].Arrival
	if p.stops[r.Job] == 0 && s.Now-r.Since < penalty || !(age+penalty > 0) {
		return 1
	}
	return max(0, age-float64(p.stops[r.Job])*penalty) / (age + penalty)
}

// snapshot writes the jobs, and the available GPUs of each type. If no restart takes time, these determine the integer
// program.
func (p *sia) snapshot(s *State, to []int) []int {
	to = append(to[:0], make([]int, len(p.size))...)
	for g, up := range s.Up {
		if up {
			to[s.Cluster.GPUs[g].Type]++
		}
	}
	return append(to, s.Arrived, s.Finished)
}
