package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/policies"
)

// Options describe an experiment.
type Options struct {
	Policy   string         // one of policies.Names
	Maker    balancer.Maker // maker of another policy, used instead of Policy; the zero value: none
	Total    int            // samples of a step
	Curves   []divide.Curve // true curves of the ranks, which the policy does not see
	Limits   []int          // largest share of each rank; nil: the last point of its curve
	Noise    float64        // standard deviation of the logarithm of a measured time
	Steps    int
	Interval int // steps between decisions
	Seed     uint64
	// EndUnknown hides the number of steps from the policy.
	EndUnknown bool
	// Drift returns the factor on the times of a rank at a step; nil: no drift.
	Drift func(rank, step int) float64
	// Knows adds what the policy knows before the first step: scores, curves, types of devices; nil: nothing.
	Knows func(o *balancer.Options)
}

// Result is the result of a simulation. All times are without noise. The fraction of the oracle is the time with the
// best shares divided by the time with the shares in use.
type Result struct {
	// The last step: its shares, its time, and the time with the best shares.
	Shares        []int   `json:"shares"`
	StepSeconds   float64 `json:"step_seconds"`
	OracleSeconds float64 `json:"oracle_step_seconds"`
	ShareOfOracle float64 `json:"share_of_oracle"`
	// The first step, and means over all steps and over the last quarter of them.
	StartShareOfOracle       float64 `json:"start_share_of_oracle"`
	MeanShareOfOracle        float64 `json:"mean_share_of_oracle"`
	LastQuarterShareOfOracle float64 `json:"last_quarter_share_of_oracle"`
	Rebalances               int     `json:"rebalances"`
	// Estimate is the policy's last estimate of the fraction of the oracle, for the shares before that decision; nil:
	// the policy makes no estimates.
	Estimate *balancer.Fraction `json:"estimate_share_of_oracle"`
	History  []Change           `json:"history"`
	// Memory is the memory of the simulation at its end, by purpose. It includes the memory of the policy if the policy
	// reports it.
	Memory []balancer.Memory `json:"memory"`
	// Track is the fraction of the oracle in each step.
	Track []float64 `json:"-"`
	// Windows contains the decisions of a policy that estimates its fraction of the oracle.
	Windows []Window `json:"-"`
}

// Window compares the fraction of the oracle that a policy estimates with the true one.
type Window struct {
	Step     int // step after which the policy decided
	Truth    float64
	Estimate balancer.Fraction
	// Equal is the true difference between the time of a step with equal shares and that of this step, in s. EqualLow
	// and EqualHigh are the policy's 90 % interval of it; NaN: unknown.
	Equal, EqualLow, EqualHigh float64
	Disagreement               string // of the estimate and the times of the window
}

// Change is one rebalance. At least one step used the shares.
type Change struct {
	Step          int     `json:"step"` // after which the shares changed
	Shares        []int   `json:"shares"`
	ShareOfOracle float64 `json:"share_of_oracle"`
	Reason        string  `json:"reason"`
}

// policy creates the simulated policy.
func (o *Options) policy(known balancer.Options) (balancer.Policy, error) {
	if o.Maker.New == nil {
		return policies.New(o.Policy, known)
	}
	return o.Maker.Make(known)
}

// Run runs a policy on curves.
func Run(o Options) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	limits := o.Limits
	if limits == nil {
		limits = Limits(o.Curves)
	}
	batch := divide.Batch{Total: o.Total, Limits: limits}
	ranks := len(o.Curves)
	known := balancer.Options{Batch: batch, Ranks: ranks, Interval: o.Interval}
	if o.Knows != nil {
		o.Knows(&known)
	}
	policy, err := o.policy(known)
	if err != nil {
		return nil, err
	}
	equal, err := known.Divide(slices.Repeat([]float64{1}, ranks))
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(o.Seed, 0x5eed))
	shares := slices.Clone(policy.Start())
	r := &Result{History: []Change{}}
	world := &world{options: &o, batch: batch, times: make([]float64, ranks)}
	step := balancer.Step{Own: make([]float64, ranks), Update: make([]float64, ranks)}
	for s := range o.Steps {
		if err := world.at(s, shares); err != nil {
			return nil, err
		}
		step.Shares, step.Seconds = shares, 0
		if !o.EndUnknown {
			step.Left = o.Steps - 1 - s
		}
		for rank, seconds := range world.times {
			step.Own[rank] = seconds * math.Exp(o.Noise*random.NormFloat64())
			step.Seconds = max(step.Seconds, step.Own[rank])
		}
		r.Track = append(r.Track, world.oracle/slices.Max(world.times))
		d, ok := policy.Observe(&step)
		if ok && !math.IsNaN(d.OfOracle.Value) {
			longer, _ := divide.Slowest(world.curves, equal)
			r.Windows = append(r.Windows, Window{Step: s + 1, Truth: r.Track[s], Estimate: d.OfOracle,
				Equal:    longer - slices.Max(world.times),
				EqualLow: d.EqualLow - d.Lost.Step, EqualHigh: d.EqualHigh - d.Lost.Step, Disagreement: d.Disagreement})
		}
		if !ok || !d.Changed || s == o.Steps-1 { // no step uses the shares that follow the last step
			continue
		}
		shares = slices.Clone(d.Next)
		r.Rebalances++
		r.History = append(r.History, Change{Step: s + 1, Shares: shares, ShareOfOracle: world.share(shares),
			Reason: d.Reason})
	}
	if n := len(r.Windows); n > 0 {
		r.Estimate = &r.Windows[n-1].Estimate
	}
	r.Shares, r.OracleSeconds, r.ShareOfOracle = shares, world.oracle, world.share(shares)
	r.StepSeconds, _ = divide.Slowest(world.curves, shares)
	r.Memory = r.memoryOf(policy, o.Curves)
	r.StartShareOfOracle, r.MeanShareOfOracle, r.LastQuarterShareOfOracle = r.Track[0], mean(r.Track),
		mean(r.Track[3*len(r.Track)/4:])
	return r, nil
}

// memoryOf returns the memory of the result, of the true curves, and of the policy.
func (r *Result) memoryOf(policy balancer.Policy, curves []divide.Curve) []balancer.Memory {
	const slice, number, point = 24, 8, 16 // bytes
	truth, history := int64(0), int64(cap(r.Track)*number)
	for _, c := range curves {
		truth += slice + point*int64(cap(c))
	}
	for _, h := range r.History {
		history += number * int64(cap(h.Shares))
	}
	list := []balancer.Memory{{Name: "true curves", Bytes: truth}, {Name: "history", Bytes: history}}
	if p, ok := policy.(balancer.Sized); ok {
		list = append(list, p.Memory()...)
	}
	return list
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v
	}
	return m / float64(len(values))
}

// Limits returns the last point of each curve, in whole samples.
func Limits(curves []divide.Curve) []int {
	limits := make([]int, len(curves))
	for r, c := range curves {
		if len(c) > 0 {
			limits[r] = int(min(c[len(c)-1].Samples, math.MaxInt32))
		}
	}
	return limits
}

// Types returns a type of device for each rank: ranks with equal curves have one type.
func Types(curves []divide.Curve) []string {
	types, first := make([]string, len(curves)), map[string]string{}
	for r, c := range curves {
		points := fmt.Sprint(c)
		if first[points] == "" {
			first[points] = fmt.Sprintf("type of rank %d", r)
		}
		types[r] = first[points]
	}
	return types
}

// MostNoise is the largest standard deviation of the logarithm of a time. At this value, the times of two steps
// typically differ by a factor of 22,000.
const MostNoise = 10.0

// MostTotal is the largest batch, in samples. If a curve falls or has tiles, the time and the memory of a decision grow
// with the batch.
const MostTotal = 1 << 24

// MostSteps is the largest number of steps. A result contains 8 bytes for each step.
const MostSteps = 100_000_000

func (o *Options) check() error {
	if err := checkCurves(o.Curves); err != nil {
		return fmt.Errorf("simulate: %w", err)
	}
	if !(o.Noise >= 0) || o.Noise > MostNoise {
		return fmt.Errorf("simulate: noise: got %v, want 0 to %v", o.Noise, MostNoise)
	}
	if o.Total < 1 || o.Total > MostTotal {
		return fmt.Errorf("simulate: batch: got %d samples, want 1 to %d", o.Total, MostTotal)
	}
	if o.Steps < 1 || o.Steps > MostSteps {
		return fmt.Errorf("simulate: got %d steps, want 1 to %d", o.Steps, MostSteps)
	}
	return nil
}

// world contains the true times of a step.
type world struct {
	options *Options
	batch   divide.Batch
	curves  []divide.Curve
	oracle  float64   // s of the best shares
	shares  []int     // in use
	times   []float64 // times of these shares, by rank, s
}

// at computes the times of a step with these shares.
func (w *world) at(step int, shares []int) error {
	if w.curves == nil || w.options.Drift != nil {
		if err := w.drift(step); err != nil {
			return err
		}
	} else if slices.Equal(shares, w.shares) {
		return nil
	}
	w.shares = shares
	for rank, c := range w.curves {
		w.times[rank] = c.At(float64(shares[rank]))
	}
	return nil
}

// drift computes the curves of a step, and the time with the best shares.
func (w *world) drift(step int) error {
	w.curves = make([]divide.Curve, len(w.options.Curves))
	for r, c := range w.options.Curves {
		w.curves[r] = c
		if w.options.Drift == nil {
			continue
		}
		factor := w.options.Drift(r, step)
		if !(factor > 0) || math.IsInf(factor, 1) {
			return fmt.Errorf("simulate: step %d: drift of rank %d: got %v, want a finite number above 0", step, r,
				factor)
		}
		w.curves[r] = slices.Clone(c)
		for i := range c {
			w.curves[r][i].Seconds *= factor
		}
	}
	best, err := divide.Solve(w.batch, w.curves)
	if err != nil {
		return err
	}
	w.oracle, _ = divide.Slowest(w.curves, best)
	return nil
}

func (w *world) share(shares []int) float64 {
	t, _ := divide.Slowest(w.curves, shares)
	return w.oracle / t
}
