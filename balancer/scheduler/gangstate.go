package scheduler

// gang makes a plan of starts, which may use sets of GPUs of several types (mixed sets). It takes the jobs of the queue
// in order, the least remaining work first. For each job, it predicts the finish time on
//
//   - each type of GPU, as soon as enough GPUs of the type are free; the remaining times of the jobs that run are known
//
//   - each mixed set of free GPUs, with the speed that the solver of the trainer predicts ([Speeds.Mixed]); only on
//     clusters of up to maxMixedTypes types
//
//   - the GPUs of a running job, shared with this job alone ([Speeds.Shared]), if the waiting job gains more time than
//     the running one loses
//
// and chooses the earliest. If these GPUs are free now, the job starts. Otherwise the plan reserves them for the job,
// and the next job chooses among the GPUs that are left. A job therefore waits for fast GPUs if it then finishes
// earlier than on slow GPUs that are free. Each decision makes a new plan, unless it is certain that the plan starts no
// job ([gang.allWait]). If no job waits and GPUs are free, the policy moves jobs to faster GPUs.
//
// A plan has up to gangDepth jobs. If it then leaves GPUs free, it has up to as many jobs as the cluster has GPUs. If
// still more jobs wait, GPUs that the plan leaves free get a job that ends there before the end of the plan
// ([gang.fill]).
type gang struct {
	placer
	planner
	ends   endIndex
	queue  waiting
	keep   bool                 // never move a job
	short  bool                 // plan for at most gangDepth jobs
	prices map[gangKey]float64  // speeds of mixed sets, steps/s; a cache
	sets   map[gangKey][]priced // mixed sets that can be the best; a cache
	latest []gangSets           // by class: the last entry of sets

	keys     []float64 // by class: GPU time of a step on the fastest type, seconds
	shares   []sharing // by class: whether its jobs can share GPUs
	outlooks []outlook // by type
	starts   []bool    // by class: GPUs that are free now suffice for its jobs; valid for classes with jobs
	counts   []int     // by type
	have     []int     // by type: buffer of setsOf
	idles    []int     // by type: GPUs that are free now in the plan
	mix      []int     // by type: best mixed set
}

// sharing states whether jobs of a class can share GPUs with jobs of any kind on any type.
type sharing uint8

const (
	sharingUnknown sharing = iota
	sharingNever
	sharingSometimes
)

// plan is the choice for one job.
type plan struct {
	finish float64 // seconds
	start  float64 // seconds
	typ    int     // of the GPUs, -1: mixed
	speed  float64 // steps/s
	shared int     // index into State.Running of the job whose GPUs it shares, or -1
}

// someIdle reports whether GPUs are free now in the plan.
func (p *gang) someIdle() bool {
	for t := range p.lanes {
		if p.lanes[t].idle() > 0 {
			return true
		}
	}
	return false
}

// idle counts the GPUs of each type that are free now in the plan.
func (p *gang) idle(have []int) {
	for t := range p.lanes {
		have[t] = p.lanes[t].idle()
	}
}

// isIdle reports whether a GPU is free now in the plan.
func (p *gang) isIdle(s *State, g int) bool {
	l := &p.lanes[s.Cluster.GPUs[g].Type]
	if l.free > 0 && p.placer.index.is[l.typ].has(g) {
		return true
	}
	return l.ready > 0 && len(s.OnGPU[g]) > 0 && p.ends.until(s, g) <= s.Now
}

// maxMixedTypes is the number of types of GPUs in a cluster up to which the policy considers mixed sets. The number of
// such sets grows exponentially with the number of types.
const maxMixedTypes = 8

// gangKey is a kind of job, its number of GPUs, and the number of GPUs of each type.
type gangKey struct {
	kind, gpus int
	counts     [maxMixedTypes]int32
}

// gangSets is an entry of gang.sets.
type gangSets struct {
	key  gangKey // gpus is 0 if there is no entry yet
	sets []priced
}

// priced is a mixed set of GPUs.
type priced struct {
	speed  float64 // steps/s
	counts []int   // by type
}

// outlook has what [gang.allWait] knows about one type of GPU. "For each second" means: for each second of GPU time
// that the job needs on its fastest type.
type outlook struct {
	horizon
	idle  int       // GPUs that are free now and that the plan has not reserved
	later bool      // some job needs more GPUs than these
	hold  []float64 // by class: the longest time for which a job holds its GPUs, for each second; 0: it runs elsewhere
	gain  []float64 // by class: the longest time for which a job waits for GPUs of this type, for each second
}
