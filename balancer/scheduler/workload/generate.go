package workload

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// Arrivals defines how many jobs arrive, and when.
type Arrivals struct {
	Jobs int
	Seed uint64
	// Load is the work that arrives per second divided by the work that the cluster computes per second. It assumes
	// that each job has the speed of its kind averaged over all GPUs. Above 1, the queue grows until the last arrival.
	Load float64
	// Burst is the mean number of jobs that arrive at the same time; 0 and 1: jobs arrive one by one (Poisson). The
	// number of jobs of a burst has a geometric distribution.
	Burst float64
	// Surge multiplies the arrivals of machine-learning jobs by this factor during a part of the run; 0 and 1: no
	// surge.
	Surge float64
	// SurgeFrom and SurgeTo are fractions of the run's expected length, between 0 and 1.
	SurgeFrom, SurgeTo float64
}

// leastLoad is the smallest load. With a smaller load, jobs would arrive so late that times in the simulator lose
// fractions of a second.
const leastLoad = 1e-6

func (a *Arrivals) check(s *Setup) error {
	var faults []error
	want := func(ok bool, what string, got any, want string) {
		if !ok {
			faults = append(faults, fmt.Errorf("%s: got %v, want %s", what, got, want))
		}
	}
	within := func(v, least, most float64) bool { return v >= least && v <= most }
	want(a.Jobs >= 1, "jobs", a.Jobs, "at least 1")
	want(within(a.Load, leastLoad, 1e6), "load", a.Load, "a number from 1e-6 to 1e6")
	want(a.Burst == 0 || within(a.Burst, 1, 1e6), "jobs of a burst", a.Burst, "a number from 1 to 1e6")
	want(a.Surge == 0 || within(a.Surge, 1, 1e6), "factor of the surge", a.Surge, "a number from 1 to 1e6")
	want(within(a.SurgeFrom, 0, 1) && within(a.SurgeTo, a.SurgeFrom, 1), "surge", [2]float64{a.SurgeFrom, a.SurgeTo},
		"two ascending fractions from 0 to 1")
	total := 0.0
	for _, shape := range s.Shapes {
		total += shape.Weight
	}
	want(len(s.Shapes) == len(s.Kinds) && total > 0, "shapes of kinds", len(s.Shapes),
		fmt.Sprintf("%d, of which one has a weight above 0", len(s.Kinds)))
	return errors.Join(faults...)
}

// Generate makes jobs of a setup's kinds. Running times have a log-normal distribution around the median of their kind,
// limited to ten times the median.
func Generate(s *Setup, a Arrivals) (*scheduler.Workload, error) {
	w := &scheduler.Workload{}
	return w, GenerateInto(w, s, a)
}

// GenerateInto is like [Generate], but reuses the memory of a workload.
func GenerateInto(w *scheduler.Workload, s *Setup, a Arrivals) error {
	if err := a.check(s); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(a.Seed, 0x6a6f6273)) // "jobs"
	w.Kinds, w.Jobs = s.Kinds, w.Jobs[:0]
	demand := s.demand()
	if !(demand > 0) {
		return errors.New(
			"load: the kinds of jobs have no demand for GPUs, want running times, sizes and speeds above 0")
	}
	rate := a.Load * float64(len(s.Cluster.GPUs)) / demand // jobs/s
	length := float64(a.Jobs) / rate                       // seconds
	burst := max(1, a.Burst)
	now, left := 0.0, 0
	for len(w.Jobs) < a.Jobs {
		surge := 1.0
		if a.Surge > 1 && now >= a.SurgeFrom*length && now < a.SurgeTo*length {
			surge = a.Surge
		}
		if left == 0 {
			now += random.ExpFloat64() * burst / (rate * s.faster(surge))
			left = 1
			if burst > 1 {
				// geometric distribution with mean burst, at least 1
				left += int(math.Log(1-random.Float64()) / math.Log(1-1/burst))
			}
		}
		left--
		w.Jobs = append(w.Jobs, s.job(random, len(w.Jobs), now, surge))
	}
	return nil
}

// weight returns the relative frequency of a kind during a surge.
func (s *Setup) weight(kind int, surge float64) float64 {
	if s.Kinds[kind].Class == scheduler.Learning {
		return s.Shapes[kind].Weight * surge
	}
	return s.Shapes[kind].Weight
}

// faster returns the factor by which a surge of machine-learning jobs increases the arrival rate of all jobs.
func (s *Setup) faster(surge float64) float64 {
	usual, now := 0.0, 0.0
	for kind := range s.Shapes {
		usual += s.Shapes[kind].Weight
		now += s.weight(kind, surge)
	}
	return now / usual
}

// name returns the name of job i. Names are cached, so that generating jobs for training allocates no memory.
func name(i int) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("job-%d", i)
}

var names = func() (list [4096]string) {
	for i := range list {
		list[i] = fmt.Sprintf("job-%d", i)
	}
	return list
}()

func (s *Setup) job(random *rand.Rand, index int, now, surge float64) scheduler.Job {
	total := 0.0
	for kind := range s.Shapes {
		total += s.weight(kind, surge)
	}
	kind, pick := len(s.Shapes)-1, random.Float64()*total
	for i := range s.Shapes {
		if pick -= s.weight(i, surge); pick < 0 {
			kind = i
			break
		}
	}
	shape := &s.Shapes[kind]
	size, pick := len(shape.Sizes)-1, random.Float64()*sum(shape.Sizes)
	for i, f := range shape.Sizes {
		if pick -= f; pick < 0 {
			size = i
			break
		}
	}
	seconds := shape.Seconds * min(mostTimes, math.Exp(shape.Sigma*random.NormFloat64()))
	gpus := 1 << size
	return scheduler.Job{Name: name(index), Kind: kind, Arrival: now, GPUs: gpus,
		Work: seconds * s.Speeds.Alone(kind, 0, gpus, false),
		CPUs: shape.CPUs, Memory: shape.Memory, Network: shape.Network,
		Priority: shape.Low + (shape.High-shape.Low)*random.Float64()}
}

// mostTimes limits running times to this multiple of the median.
const mostTimes = 10

func sum(v []float64) (total float64) {
	for _, x := range v {
		total += x
	}
	return total
}

// demand returns the mean GPU time of a job in seconds, with the speed of each kind averaged over all GPUs.
func (s *Setup) demand() float64 {
	weights, total := 0.0, 0.0
	for kind := range s.Shapes {
		shape := &s.Shapes[kind]
		weights += shape.Weight
		sizes := sum(shape.Sizes)
		seconds := shape.Seconds * cappedMean(shape.Sigma, mostTimes)
		for i, f := range shape.Sizes {
			gpus := 1 << i
			work, speed := seconds*s.Speeds.Alone(kind, 0, gpus, false), 0.0
			for _, g := range s.Cluster.GPUs {
				speed += s.Speeds.Alone(kind, g.Type, gpus, false) / float64(len(s.Cluster.GPUs))
			}
			if speed > 0 {
				total += shape.Weight * f / sizes * float64(gpus) * work / speed
			}
		}
	}
	return total / weights
}

// cappedMean returns the mean of min(limit, exp(sigma * Z)) for a standard normal Z.
func cappedMean(sigma, limit float64) float64 {
	if sigma == 0 {
		return min(1, limit)
	}
	normal := func(z float64) float64 { return 0.5 * math.Erfc(-z/math.Sqrt2) }
	z := math.Log(limit) / sigma
	return math.Exp(sigma*sigma/2)*normal(z-sigma) + limit*(1-normal(z))
}
