package features

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// Ranges contains the range of each fact.
type Ranges struct {
	ranges [factCount]Range
	origin [factCount]string // "default", "minimum and maximum", "quantiles 0.01 to 0.99"
}

// DefaultRanges returns the ranges of [Facts].
func DefaultRanges() *Ranges {
	r := new(Ranges)
	for f := range facts {
		r.ranges[f], r.origin[f] = facts[f].Range, "default"
	}
	return r
}

// Of returns the range of a fact and its origin. ok is false for an unknown fact.
func (r *Ranges) Of(fact string) (rng Range, origin string, ok bool) {
	f := index(fact)
	if f < 0 {
		return Range{}, "", false
	}
	return r.ranges[f], r.origin[f], true
}

// Set sets the range of a fact.
func (r *Ranges) Set(fact string, rng Range) error {
	f := index(fact)
	if f < 0 {
		return fmt.Errorf("range of %q: unknown fact, want one of features.Facts", fact)
	}
	if err := rng.check(fact); err != nil {
		return err
	}
	r.ranges[f], r.origin[f] = rng, "given"
	return nil
}

func index(fact string) int {
	return slices.IndexFunc(facts[:], func(f Fact) bool { return f.Name == fact })
}

func (r Range) check(fact string) error {
	switch {
	case math.IsNaN(r.Low) || math.IsInf(r.Low, 0) || math.IsNaN(r.High) || math.IsInf(r.High, 0) ||
		!(r.Low < r.High) || math.IsInf(r.High-r.Low, 0):
		return fmt.Errorf("range of %s: got %v to %v, want finite numbers, the first below the second", fact, r.Low,
			r.High)
	case r.Log && !(r.Low > 0 && !math.IsInf(r.High/r.Low, 0)):
		return fmt.Errorf("range of %s: got %v to %v on a logarithmic scale, want numbers above 0", fact, r.Low, r.High)
	}
	return nil
}

// Learner learns ranges from values of facts. It keeps the minimum, the maximum and a random sample of each fact. The
// sample is deterministic: equal values in equal order give equal ranges.
type Learner struct {
	facts [factCount]learnt
}

type learnt struct {
	count     int
	low, high float64
	sample    []float64
	random    *rand.PCG
}

// sampleSize is the number of values from which quantiles are computed. The error of a quantile p is about sqrt(p (1-p)
// / sampleSize): 0.16 % for p = 1 %.
const sampleSize = 4096

// NewLearner returns a learner without values.
func NewLearner(seed uint64) *Learner {
	l := new(Learner)
	for f := range l.facts {
		l.facts[f].random = rand.NewPCG(seed, uint64(f))
	}
	return l
}

func (l *Learner) add(fact int, x float64) {
	if math.IsNaN(x) || math.IsInf(x, 0) || facts[fact].Range.Log && x <= 0 {
		return
	}
	k := &l.facts[fact]
	if k.count++; k.count == 1 {
		k.low, k.high = x, x
	}
	k.low, k.high = min(k.low, x), max(k.high, x)
	if len(k.sample) < sampleSize {
		k.sample = append(k.sample, x)
	} else if at := k.random.Uint64() % uint64(k.count); at < sampleSize { // reservoir sampling
		k.sample[at] = x
	}
}

// Add adds a value of a fact. It ignores NaN and infinite values. For a fact with a logarithmic scale, it also ignores
// 0 and negative values.
func (l *Learner) Add(fact string, x float64) error {
	f := index(fact)
	if f < 0 {
		return fmt.Errorf("learn the range of %q: unknown fact, want one of features.Facts", fact)
	}
	l.add(f, x)
	return nil
}

// Workload adds the facts of all GPUs and jobs that do not depend on a state.
func (l *Learner) Workload(c *scheduler.Cluster, w *scheduler.Workload) {
	var raw [factCount]float64
	for gpu := range c.GPUs {
		gpuStatic(&raw, c, gpu)
		for _, f := range []int{gpuTemperature, gpuMemory, gpuBandwidth, gpuCompute, gpuNetwork} {
			l.add(f, raw[f])
		}
	}
	for job := range w.Jobs {
		jobStatic(&raw, w, job)
		for _, f := range []int{jobGPUs, jobCPUs, jobMemory, jobNetwork, jobGPUMemory, jobWork} {
			l.add(f, raw[f])
		}
	}
}

// Ranges returns ranges from one quantile of the values to another, for example from 0.01 to 0.99. Quantiles 0 and 1
// are the minimum and the maximum of all values. Fractions keep their default ranges, and so do facts with fewer than 2
// values or only equal values.
func (l *Learner) Ranges(low, high float64) (*Ranges, error) {
	if !(low >= 0 && low < high && high <= 1) {
		return nil, fmt.Errorf("quantiles of ranges: got %v and %v, want 0 <= first < second <= 1", low, high)
	}
	r := DefaultRanges()
	for f := range facts {
		k := &l.facts[f]
		if facts[f].Range == fraction || k.count < 2 {
			continue
		}
		learnt := Range{k.low, k.high, facts[f].Range.Log}
		origin := "minimum and maximum"
		sample := slices.Sorted(slices.Values(k.sample))
		if low > 0 || high < 1 {
			learnt.Low, learnt.High = quantile(sample, low), quantile(sample, high)
			origin = fmt.Sprintf("quantiles %v to %v", low, high)
		}
		if learnt.check(facts[f].Name) == nil {
			r.ranges[f], r.origin[f] = learnt, origin
		}
	}
	return r, nil
}

// quantile interpolates between the values of a sorted sample.
func quantile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	i := min(int(at), len(sorted)-1)
	j := min(i+1, len(sorted)-1)
	f := at - float64(i)
	return sorted[i]*(1-f) + sorted[j]*f
}

// rangesFile is the file of ranges.
type rangesFile struct {
	Version int         `json:"version"`
	Facts   []rangeFact `json:"facts"`
}

type rangeFact struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Log    bool    `json:"log"`
	Origin string  `json:"origin"`
}

const rangesVersion = 1

// WriteRanges writes ranges as JSON.
func WriteRanges(w io.Writer, r *Ranges) error {
	file := rangesFile{Version: rangesVersion}
	for f := range facts {
		file.Facts = append(file.Facts, rangeFact{facts[f].Name, facts[f].Unit, r.ranges[f].Low, r.ranges[f].High,
			r.ranges[f].Log, r.origin[f]})
	}
	text, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return fmt.Errorf("write ranges: %w", err)
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// ReadRanges reads the output of WriteRanges. It reports all faults of the file: another version, unknown keys, facts
// that are unknown, missing or listed twice, and invalid ranges.
func ReadRanges(source string, in io.Reader) (*Ranges, error) {
	const most = 1 << 20
	text, err := io.ReadAll(io.LimitReader(in, most+1))
	if err != nil {
		return nil, fmt.Errorf("ranges %s: %w", source, err)
	}
	if len(text) > most {
		return nil, fmt.Errorf("ranges %s: got more than %d bytes, want a file of WriteRanges", source, most)
	}
	var version struct{ Version int }
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, fmt.Errorf("ranges %s: want one complete JSON object: %w", source, err)
	}
	if version.Version != rangesVersion {
		return nil, fmt.Errorf("ranges %s: got version %d, want %d", source, version.Version, rangesVersion)
	}
	var file rangesFile
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, fmt.Errorf("ranges %s: %w", source, err)
	}
	r, seen := DefaultRanges(), [factCount]bool{}
	var faults []error
	for i, v := range file.Facts {
		f := index(v.Name)
		rng := Range{v.Low, v.High, v.Log}
		switch {
		case f < 0:
			faults = append(faults, fmt.Errorf("ranges %s: entry %d: got %.60q, want the name of a feature", source, i,
				v.Name))
		case seen[f]:
			faults = append(faults, fmt.Errorf("ranges %s: entry %d: got %s a second time, want each feature once",
				source, i, v.Name))
		case v.Unit != facts[f].Unit:
			faults = append(faults, fmt.Errorf("ranges %s: %s: got unit %.20q, want %q", source, v.Name, v.Unit,
				facts[f].Unit))
		case rng.check(v.Name) != nil:
			faults = append(faults, fmt.Errorf("ranges %s: %w", source, rng.check(v.Name)))
		default:
			r.ranges[f], r.origin[f] = rng, v.Origin
		}
		if f >= 0 {
			seen[f] = true
		}
		if len(faults) >= 20 {
			break
		}
	}
	for f, found := range seen {
		if !found && len(faults) < 20 {
			faults = append(faults,
				fmt.Errorf(
					"ranges %s: got no range of %s: the file is incomplete, or another version of the program wrote it",
					source, facts[f].Name))
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return r, nil
}
