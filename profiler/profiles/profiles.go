package profiles

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/measure"
)

// SchemaVersion is the version of both file formats. It increases when a program for the previous version would misread
// a new file.
//
//	1  a value that was not measured is 0
//	2  a value that was not measured is null; all ranks with the same device type have the same score
const SchemaVersion = 2

// Names of the files.
const (
	RanksFile  = "gpu_profiles.json"
	SystemFile = "system_profile.json"
)

// Origin contains the first fields of both files.
type Origin struct {
	SchemaVersion int       `json:"schema_version"`
	Fingerprint   string    `json:"fingerprint"` // hash of the fingerprints of all ranks; see Seal
	Created       time.Time `json:"created"`
	Program       string    `json:"program"`
	Quick         bool      `json:"quick"` // the measurements had reduced budgets
}

// Ranks is the contents of gpu_profiles.json.
type Ranks struct {
	Origin
	Score Rule   `json:"score"`
	Ranks []Rank `json:"ranks"` // in the order of ranks
	// how well the scores predict step times; nil if no step was timed
	Prediction *Prediction `json:"prediction,omitempty"`
}

// Rule describes how the scores were computed.
type Rule struct {
	Formula         string  `json:"formula"`
	ComputeFraction float64 `json:"compute_share"`
	MemoryFraction  float64 `json:"memory_share"`
	Model           string  `json:"model,omitempty"` // model for which MemoryFraction was computed; "" for the default
}

// Rank describes the device of one rank and its measurements.
type Rank struct {
	Rank          int           `json:"rank"`
	LocalRank     int           `json:"local_rank"`
	Host          string        `json:"host"`
	Fingerprint   string        `json:"fingerprint"`
	DeviceType    string        `json:"device_type"` // hardware.Identity.Type
	Device        Device        `json:"device"`
	GPU           *hardware.GPU `json:"gpu,omitempty"` // nil for a CPU rank
	MemoryBytes   int64         `json:"memory_bytes"`  // memory that the rank may use, which limits its share
	Measured      Measured      `json:"measured"`
	ComputeScore  float64       `json:"compute_score"`
	RelativeScore float64       `json:"relative_score"`       // score relative to the slowest rank, which has 1.0
	StepTimes     *StepTimes    `json:"step_times,omitempty"` // nil if steps were not timed with several shares
	Skipped       []string      `json:"skipped,omitempty"`
}

// StepTimes contains the step times of a model on one rank, for several shares. They determine the shape of the rank's
// step-time curve.
type StepTimes struct {
	// settings on which the times depend; a run with other settings ignores the times
	Setting string     `json:"setting"`
	Error   float64    `json:"error"`  // standard error of the time of a point as a fraction: 0.02 means 2 %
	Points  []StepTime `json:"points"` // ascending in Samples, at least one
}

// StepTime is the time of a step with a number of samples in a micro-batch.
type StepTime struct {
	Samples int            `json:"samples"`
	Seconds measure.Figure `json:"seconds"` // median over several measurements with this share
	Steps   int            `json:"steps"`   // number of measured steps
}

// check returns an error for points that do not form a curve.
func (s *StepTimes) check() error {
	if len(s.Points) == 0 {
		return errors.New("points: got none, want at least one")
	}
	if !(s.Error >= 0) || math.IsInf(s.Error, 1) {
		return fmt.Errorf("error: got %v, want a number of at least 0", s.Error)
	}
	for i, p := range s.Points {
		switch {
		case p.Samples < 1 || i > 0 && p.Samples <= s.Points[i-1].Samples:
			return fmt.Errorf("points[%d]: samples: got %d, want ascending numbers from 1", i, p.Samples)
		case !p.Seconds.Known() || math.IsInf(float64(p.Seconds), 1):
			return fmt.Errorf("points[%d]: seconds: got %v, want a positive number", i, float64(p.Seconds))
		}
	}
	return nil
}

// Device describes a device in the terms of the engine.
type Device struct {
	Name    string          `json:"name"` // for example "cpu:0"
	Kind    string          `json:"kind"`
	Vendor  hardware.Vendor `json:"vendor"`
	Model   string          `json:"model"`
	ISA     string          `json:"isa"`
	Threads int             `json:"threads,omitempty"`
	CPUs    float64         `json:"cpus,omitempty"` // CPUs that the rank may use, for a CPU device
}

// Measured contains the values measured on one rank.
type Measured struct {
	DType  string            `json:"dtype"` // element type of the training, which determines the score
	TFLOPS measure.Figure    `json:"tflops"`
	All    []measure.Compute `json:"products"` // one entry per element type that the device supports
	Memory measure.Bandwidth `json:"memory"`
	Copies measure.Copies    `json:"copies"`
}

// String returns the log line of the rank.
func (r Rank) String() string {
	digits := fmt.Sprintf("%.1f", r.ComputeScore)
	if r.ComputeScore < 1 {
		digits = fmt.Sprintf("%.2g", r.ComputeScore)
	}
	return fmt.Sprintf("Node %d: Compute score %s, Memory %dMB", r.Rank, digits, r.MemoryBytes>>20)
}

// Rate computes the scores of all ranks. fractions contains the memory-bound fraction of a step for each rank; nil
// means the default. The mean of the fractions applies to all ranks, so that scores can be compared. Ranks with the
// same device type and element type get the same score, because differences between them are noise.
func (p *Ranks) Rate(model string, fractions []float64) error {
	memory := DefaultMemoryFraction
	if len(fractions) > 0 {
		memory = 0
		for _, s := range fractions {
			memory += s / float64(len(fractions))
		}
	}
	p.Score = Rule{Formula: Formula, ComputeFraction: 1 - memory, MemoryFraction: memory, Model: model}
	scores := make([]float64, len(p.Ranks))
	for i := range p.Ranks {
		var err error
		if scores[i], err = Score(p.typical(i, func(m *Measured) measure.Figure { return m.TFLOPS }),
			p.typical(i, func(m *Measured) measure.Figure { return m.Memory.Copy }), memory); err != nil {
			return fmt.Errorf("rank %d: %w", i, err)
		}
	}
	for i, relative := range Relative(scores) {
		p.Ranks[i].ComputeScore, p.Ranks[i].RelativeScore = scores[i], relative
	}
	return nil
}

// typical returns the median of a value over all ranks with the same device type and element type. A rank with an
// unknown device type keeps its own value.
func (p *Ranks) typical(rank int, of func(*Measured) measure.Figure) float64 {
	own := &p.Ranks[rank]
	if own.DeviceType == "" {
		return float64(of(&own.Measured))
	}
	var figures []float64
	for i := range p.Ranks {
		if r := &p.Ranks[i]; r.DeviceType == own.DeviceType && r.Measured.DType == own.Measured.DType {
			figures = append(figures, float64(of(&r.Measured)))
		}
	}
	slices.Sort(figures)
	n := len(figures)
	return (figures[(n-1)/2] + figures[n/2]) / 2
}

// Scores returns the compute scores in the order of ranks.
func (p *Ranks) Scores() []float64 {
	var scores []float64
	for _, r := range p.Ranks {
		scores = append(scores, r.ComputeScore)
	}
	return scores
}

// Seal computes the fingerprint of the profile from those of the ranks.
func (p *Ranks) Seal() {
	prints := make([]string, len(p.Ranks))
	for i, r := range p.Ranks {
		prints[i] = r.Fingerprint
	}
	p.Fingerprint = hardware.Fingerprint(prints...)
}

// Match assigns an entry of the profile to each rank of a run, by the fingerprints of the hardware. A rank gets the
// entry with its own number if the fingerprints are equal, and otherwise another entry with its fingerprint. If there
// is no such entry for some rank, the profile does not apply: Match returns nil and the reason, for a warning.
func (p *Ranks) Match(fingerprints []string) (ranks []Rank, mismatch string) {
	var strangers []string
	for rank, print := range fingerprints {
		at := slices.IndexFunc(p.Ranks, func(r Rank) bool { return r.Rank == rank && r.Fingerprint == print })
		if at < 0 {
			at = slices.IndexFunc(p.Ranks, func(r Rank) bool { return r.Fingerprint == print })
		}
		if at < 0 {
			strangers = append(strangers, strconv.Itoa(rank))
			continue
		}
		r := p.Ranks[at]
		r.Rank = rank
		ranks = append(ranks, r)
	}
	if len(strangers) > 0 {
		return nil,
			fmt.Sprintf("the profile does not match the hardware of rank %s (the profile has %d ranks, measured on %s)",
				strings.Join(strangers, ", "), len(p.Ranks), p.Created.Format(time.DateOnly))
	}
	return ranks, ""
}
