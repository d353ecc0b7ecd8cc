package profiles

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/measure"
)

// SchemaVersion is the version of both files. It changes when a reader of the previous version would misread the new
// one.
//
//	1  a figure that was not measured is 0
//	2  a figure that was not measured is null; ranks of the same device type have one score
const SchemaVersion = 2

// Names of the files.
const (
	RanksFile  = "gpu_profiles.json"
	SystemFile = "system_profile.json"
)

// Origin is the head of both files.
type Origin struct {
	SchemaVersion int       `json:"schema_version"`
	Fingerprint   string    `json:"fingerprint"` // over all ranks
	Created       time.Time `json:"created"`
	Program       string    `json:"program"`
	Quick         bool      `json:"quick"` // measured with shorter budgets
}

// Ranks is the content of gpu_profiles.json.
type Ranks struct {
	Origin
	Score      Rule        `json:"score"`
	Ranks      []Rank      `json:"ranks"`                // by rank
	Prediction *Prediction `json:"prediction,omitempty"` // how well the scores predict step times; nil: no step was timed
}

// Rule describes how the scores were computed.
type Rule struct {
	Formula         string  `json:"formula"`
	ComputeFraction float64 `json:"compute_share"`
	MemoryFraction  float64 `json:"memory_share"`
	Model           string  `json:"model,omitempty"` // model for MemoryFraction; "": the default
}

// Rank describes one rank's device and its measurements.
type Rank struct {
	Rank          int           `json:"rank"`
	LocalRank     int           `json:"local_rank"`
	Host          string        `json:"host"`
	Fingerprint   string        `json:"fingerprint"`
	DeviceType    string        `json:"device_type"` // hardware.Identity.Type
	Device        Device        `json:"device"`
	GPU           *hardware.GPU `json:"gpu,omitempty"` // the rank's card; nil for a CPU rank
	MemoryBytes   int64         `json:"memory_bytes"`  // available to the rank: limits its share
	Measured      Measured      `json:"measured"`
	ComputeScore  float64       `json:"compute_score"`
	RelativeScore float64       `json:"relative_score"` // slowest rank = 1.0
	Skipped       []string      `json:"skipped,omitempty"`
}

// Device is the rank's device as the engine describes it.
type Device struct {
	Name    string          `json:"name"` // "cpu:0"
	Kind    string          `json:"kind"`
	Vendor  hardware.Vendor `json:"vendor"`
	Model   string          `json:"model"`
	ISA     string          `json:"isa"`
	Threads int             `json:"threads,omitempty"`
	CPUs    float64         `json:"cpus,omitempty"` // available to the rank, for a CPU device
}

// Measured holds a rank's own figures.
type Measured struct {
	DType  string            `json:"dtype"` // of training: the type of the score
	TFLOPS measure.Figure    `json:"tflops"`
	All    []measure.Compute `json:"products"` // of every type that the device supports
	Memory measure.Bandwidth `json:"memory"`
	Copies measure.Copies    `json:"copies"`
}

// String returns the rank's log line.
func (r Rank) String() string {
	digits := fmt.Sprintf("%.1f", r.ComputeScore)
	if r.ComputeScore < 1 {
		digits = fmt.Sprintf("%.2g", r.ComputeScore)
	}
	return fmt.Sprintf("Node %d: Compute score %s, Memory %dMB", r.Rank, digits, r.MemoryBytes>>20)
}

// Rate computes the scores of all ranks. shares are the ranks' memory-bound fractions of a step, nil for the default.
// Their mean applies to all ranks, so that scores can be compared. Ranks of the same device type and element type get
// the same score, because differences between them are noise.
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
		if scores[i], err = Score(p.typical(i, func(m *Measured) measure.Figure { return m.TFLOPS }), p.typical(i, func(m *Measured) measure.Figure { return m.Memory.Copy }), memory); err != nil {
			return fmt.Errorf("rank %d: %w", i, err)
		}
	}
	for i, relative := range Relative(scores) {
		p.Ranks[i].ComputeScore, p.Ranks[i].RelativeScore = scores[i], relative
	}
	return nil
}

// typical returns the median of a figure over all ranks with the same device type and element type. A rank with an
// unknown device type keeps its own figure.
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

// Scores returns the ranks' compute scores.
func (p *Ranks) Scores() []float64 {
	var scores []float64
	for _, r := range p.Ranks {
		scores = append(scores, r.ComputeScore)
	}
	return scores
}

// Seal sets the fingerprint of the profile from those of the ranks.
func (p *Ranks) Seal() {
	prints := make([]string, len(p.Ranks))
	for i, r := range p.Ranks {
		prints[i] = r.Fingerprint
	}
	p.Fingerprint = hardware.Fingerprint(prints...)
}

// Match assigns an entry to each rank of a run, by the fingerprints of the ranks' hardware. A rank gets the entry of
// the same number, or that of another rank with the same fingerprint. If a rank has none, the profile does not apply:
// Match returns nil and the reason, for a warning.
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
		return nil, fmt.Sprintf("the profile does not match the hardware of rank %s (%d ranks were profiled on %s)",
			strings.Join(strangers, ", "), len(p.Ranks), p.Created.Format(time.DateOnly))
	}
	return ranks, ""
}
