package workload

import (
	"errors"
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// Rate is the speed of a kind of job on a number of GPUs of one type. A step is a batch of one GPU, and n GPUs compute
// n steps at the same time. The rate of a gang that scales perfectly is therefore n times that of one GPU.
type Rate struct {
	GPUs   int
	Packed float64 // steps/s with all GPUs in one machine; 0: does not run
	Spread float64 // steps/s over several machines; 0: does not run
}

// Rates are the speeds of one kind of job.
type Rates struct {
	// Types lists the measured rates for each type of GPU, in ascending numbers of GPUs.
	Types [][]Rate
	// Batch is the number of samples per GPU in a step; 0: the kind cannot run on GPUs of several types.
	Batch int
	// Curves contains, for each type of GPU, the time of a step on one GPU by the number of samples; nil: unknown.
	Curves []divide.Curve
}

// Pair is the speed of two jobs that share the same GPUs.
type Pair struct {
	Kind, Other       int
	Type              int     // type of the GPUs
	GPUs              int     // number of GPUs that both use
	Speed, OtherSpeed float64 // steps/s of Kind and of Other; both 0: the two do not fit on the same GPUs
}

// Table implements [scheduler.Speeds] with measured speeds. Fill Kinds and Pairs, then call [Table.Build] once. After
// that, the table does not change, and is safe for concurrent use.
//
// For a number of GPUs between two measured numbers, the speed is interpolated linearly between the two. A number of
// GPUs outside of the measured range has speed 0. Speeds of pairs are not interpolated.
type Table struct {
	Kinds []Rates
	Pairs []Pair
	// Have contains the number of GPUs of each type in the cluster; nil: unknown. No speed can be measured on more GPUs
	// than these. For a larger gang on several types, [Table.Mixed] uses the communication time of the largest measured
	// number.
	Have []int

	types   int
	most    int       // GPUs
	packed  []float64 // by kind, type, number of GPUs
	spread  []float64
	sharing map[pairKey]float64
}

type pairKey struct{ kind, other, typ, gpus int }

// Build checks the speeds and prepares the table for use. types is the number of types of GPUs.
func (t *Table) Build(types int) error {
	if err := t.check(types); err != nil {
		return err
	}
	t.types, t.most = types, 0
	for _, k := range t.Kinds {
		for _, rates := range k.Types {
			if n := len(rates); n > 0 {
				t.most = max(t.most, rates[n-1].GPUs)
			}
		}
	}
	t.packed = make([]float64, len(t.Kinds)*types*(t.most+1))
	t.spread = make([]float64, len(t.packed))
	for kind, k := range t.Kinds {
		for typ, rates := range k.Types {
			at := (kind*types + typ) * (t.most + 1)
			fill(t.packed[at:at+t.most+1], rates, func(r Rate) float64 { return r.Packed })
			fill(t.spread[at:at+t.most+1], rates, func(r Rate) float64 { return r.Spread })
		}
	}
	t.sharing = make(map[pairKey]float64, 2*len(t.Pairs))
	for _, p := range t.Pairs {
		if p.Speed > 0 && p.OtherSpeed > 0 {
			t.sharing[pairKey{p.Kind, p.Other, p.Type, p.GPUs}] = p.Speed
			t.sharing[pairKey{p.Other, p.Kind, p.Type, p.GPUs}] = p.OtherSpeed
		}
	}
	return nil
}

// fill writes the speed for each number of GPUs.
func fill(speeds []float64, rates []Rate, speed func(Rate) float64) {
	for i, r := range rates {
		speeds[r.GPUs] = speed(r)
		if i == 0 {
			continue
		}
		before := rates[i-1]
		a, b := speed(before), speed(r)
		if a == 0 || b == 0 {
			continue
		}
		for n := before.GPUs + 1; n < r.GPUs; n++ {
			f := float64(n-before.GPUs) / float64(r.GPUs-before.GPUs)
			speeds[n] = a + f*(b-a)
		}
	}
}

func (t *Table) check(types int) error {
	var faults []error
	fault := func(format string, values ...any) {
		if len(faults) < 20 {
			faults = append(faults, fmt.Errorf(format, values...))
		}
	}
	if t.Have != nil && len(t.Have) != types {
		fault("numbers of GPUs: got %d types, want %d", len(t.Have), types)
	}
	speed := func(v float64) bool { return v >= 0 && v <= math.MaxFloat64 }
	for kind, k := range t.Kinds {
		if len(k.Types) != types {
			fault("speeds of kind %d: got %d types of GPUs, want %d", kind, len(k.Types), types)
		}
		if k.Batch < 0 {
			fault("speeds of kind %d: got a batch of %d samples, want at least 0", kind, k.Batch)
		}
		if k.Curves != nil && len(k.Curves) != types {
			fault("speeds of kind %d: got curves for %d types of GPUs, want %d", kind, len(k.Curves), types)
		}
		for typ, c := range k.Curves {
			if c != nil {
				if err := c.Check(); err != nil {
					fault("speeds of kind %d: curve on GPU type %d: %w", kind, typ, err)
				}
			}
		}
		for typ, rates := range k.Types {
			last := 0
			for _, r := range rates {
				if r.GPUs <= last || r.GPUs > 1<<16 {
					fault("speeds of kind %d on GPU type %d: got %d GPUs after %d, want an ascending number up to %d",
						kind, typ, r.GPUs, last, 1<<16)
				}
				if !speed(r.Packed) || !speed(r.Spread) {
					fault("speeds of kind %d on %d GPUs of type %d: got %v and %v steps/s, want finite numbers of at least 0",
						kind, r.GPUs, typ, r.Packed, r.Spread)
				}
				last = max(last, r.GPUs)
			}
		}
	}
	for i, p := range t.Pairs {
		inside := func(v, n int) bool { return v >= 0 && v < n }
		if !inside(p.Kind, len(t.Kinds)) || !inside(p.Other, len(t.Kinds)) || !inside(p.Type, types) || p.GPUs < 1 {
			fault("pair %d: got kinds %d and %d on %d GPUs of type %d, want kinds below %d, types below %d and at least 1 GPU",
				i, p.Kind, p.Other, p.GPUs, p.Type, len(t.Kinds), types)
		}
		if !speed(p.Speed) || !speed(p.OtherSpeed) {
			fault("pair %d: got %v and %v steps/s, want finite numbers of at least 0", i, p.Speed, p.OtherSpeed)
		}
	}
	return errors.Join(faults...)
}

// Alone implements [scheduler.Speeds].
func (t *Table) Alone(kind, gpuType, n int, spread bool) float64 {
	if n < 1 || n > t.most {
		return 0
	}
	at := (kind*t.types+gpuType)*(t.most+1) + n
	if spread {
		return t.spread[at]
	}
	return t.packed[at]
}

// Shared implements [scheduler.Speeds].
func (t *Table) Shared(kind, other, gpuType, n int) (float64, bool) {
	speed, ok := t.sharing[pairKey{kind, other, gpuType, n}]
	return speed, ok
}

// Mixed implements [scheduler.Speeds]. The samples of a step, Batch for each GPU, are divided among all GPUs by the
// solver of the trainer, which minimises the time of the slowest GPU. Mixed adds the communication time of the gang to
// this time. For each type, the communication time is the measured time of a step on that number of GPUs minus the time
// on one GPU. The longest of these times counts. If the cluster has fewer GPUs of the type (Have), the largest measured
// number counts instead. No GPU gets more samples than the largest measured number of its curve. ok is false if a
// measurement is missing ([Table.Lacks]).
func (t *Table) Mixed(kind int, counts []int, spread bool) (speed float64, ok bool) {
	k := &t.Kinds[kind]
	if _, figure := t.Lacks(kind, counts, spread); figure != "" {
		return 0, false
	}
	var curves []divide.Curve
	limits, communication, gpus := []int(nil), 0.0, total(counts)
	for typ, n := range counts {
		if n == 0 {
			continue
		}
		c := k.Curves[typ]
		seconds, _ := t.communication(kind, typ, gpus, spread)
		communication = max(communication, seconds)
		for range n {
			curves = append(curves, c)
			limits = append(limits, int(c[len(c)-1].Samples)) // the curve has no larger number of samples
		}
	}
	shares, err := divide.Solve(divide.Batch{Total: k.Batch * gpus, Limits: limits}, curves)
	if err != nil {
		return 0, false
	}
	slowest, _ := divide.Slowest(curves, shares)
	return float64(gpus) / (slowest + communication), true
}

// Lacks implements [scheduler.MeasuredSpeeds].
func (t *Table) Lacks(kind int, counts []int, spread bool) (gpuType int, figure string) {
	k := &t.Kinds[kind]
	if k.Batch == 0 {
		return -1, "batch"
	}
	gpus := total(counts)
	for typ, n := range counts {
		if n == 0 {
			continue
		}
		if k.Curves == nil || k.Curves[typ] == nil {
			return typ, "curve"
		}
		if t.Alone(kind, typ, 1, false) == 0 {
			return typ, "speed on 1 GPU"
		}
		if _, ok := t.communication(kind, typ, gpus, spread); !ok {
			if figure = fmt.Sprintf("speed on %d GPUs", gpus); spread {
				figure += " of several machines"
			}
			return typ, figure
		}
	}
	return -1, ""
}

// communication returns the time, in seconds, that a gang would need for communication in a step if all its GPUs were
// of one type.
func (t *Table) communication(kind, typ, gpus int, spread bool) (seconds float64, ok bool) {
	one, all := t.Alone(kind, typ, 1, false), t.Alone(kind, typ, gpus, spread)
	switch rates := t.Kinds[kind].Types[typ]; {
	case one == 0:
		return 0, false
	case all > 0:
		return float64(gpus)/all - 1/one, true
	case t.Have == nil || t.Have[typ] >= gpus || rates[len(rates)-1].GPUs >= gpus:
		return 0, false
	default:
		last := rates[len(rates)-1]
		if all = last.Spread; !spread || all == 0 {
			all = last.Packed
		}
		return float64(last.GPUs)/all - 1/one, all > 0
	}
}

// total returns the number of GPUs of a mixed set.
func total(counts []int) (gpus int) {
	for _, n := range counts {
		gpus += n
	}
	return gpus
}
