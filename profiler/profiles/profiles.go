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

// SchemaVersion is that of both files. It changes when a reader of the old one would misread the new one.
//
//	1  a figure that was not measured is 0
//	2  a figure that was not measured is null; ranks of the same device type have one score
const SchemaVersion = 2

// The names of the files.
const (
	RanksFile  = "gpu_profiles.json"
	SystemFile = "system_profile.json"
)

// Origin is what both files begin with.
type Origin struct {
	SchemaVersion int       `json:"schema_version"`
	Fingerprint   string    `json:"fingerprint"` // of all ranks' together
	Created       time.Time `json:"created"`
	Program       string    `json:"program"`
	Quick         bool      `json:"quick"` // measured with shorter budgets
}

// Ranks is gpu_profiles.json.
type Ranks struct {
	Origin
	Score      Rule        `json:"score"`
	Ranks      []Rank      `json:"ranks"`                // by rank
	Prediction *Prediction `json:"prediction,omitempty"` // how well the scores predict step times; nil: no step was timed
}

// Rule says how the scores were computed.
type Rule struct {
	Formula      string  `json:"formula"`
	ComputeShare float64 `json:"compute_share"`
	MemoryShare  float64 `json:"memory_share"`
	Model        string  `json:"model,omitempty"` // of which MemoryShare is; "" = none, the default
}

// Rank is one rank's device, and what was measured on it.
type Rank struct {
	Rank          int           `json:"rank"`
	LocalRank     int           `json:"local_rank"`
	Host          string        `json:"host"`
	Fingerprint   string        `json:"fingerprint"`
	DeviceType    string        `json:"device_type"` // hardware.Identity.Type
	Device        Device        `json:"device"`
	GPU           *hardware.GPU `json:"gpu,omitempty"` // the card, of a rank that computes on one
	MemoryBytes   int64         `json:"memory_bytes"`  // that the rank may use: it limits its share
	Measured      Measured      `json:"measured"`
	ComputeScore  float64       `json:"compute_score"`
	RelativeScore float64       `json:"relative_score"` // slowest rank = 1.0
	Skipped       []string      `json:"skipped,omitempty"`
}

// Device is what the rank computes on, as the engine sees it.
type Device struct {
	Name    string          `json:"name"` // "cpu:0"
	Kind    string          `json:"kind"`
	Vendor  hardware.Vendor `json:"vendor"`
	Model   string          `json:"model"`
	ISA     string          `json:"isa"`
	Threads int             `json:"threads,omitempty"`
	CPUs    float64         `json:"cpus,omitempty"` // that the rank may use, of a CPU device
}

// Measured are a rank's own figures.
type Measured struct {
	DType  string            `json:"dtype"` // of training, which the score is about
	TFLOPS measure.Figure    `json:"tflops"`
	All    []measure.Compute `json:"products"` // of every type that the device has
	Memory measure.Bandwidth `json:"memory"`
	Copies measure.Copies    `json:"copies"`
}

// String is the log line that users look for.
func (r Rank) String() string {
	digits := fmt.Sprintf("%.1f", r.ComputeScore)
	if r.ComputeScore < 1 {
		digits = fmt.Sprintf("%.2g", r.ComputeScore)
	}
	return fmt.Sprintf("Node %d: Compute score %s, Memory %dMB", r.Rank, digits, r.MemoryBytes>>20)
}

// Rate computes the scores of all ranks. shares are the ranks' memory-bound shares of a step; their mean holds for all, so that scores can
// be compared. nil is the default. Ranks of the same device type and element type get the same score: what differs between them is chance.
func (p *Ranks) Rate(model string, shares []float64) error {
	memory := DefaultMemoryShare
	if len(shares) > 0 {
		memory = 0
		for _, s := range shares {
			memory += s / float64(len(shares))
		}
	}
	p.Score = Rule{Formula: Formula, ComputeShare: 1 - memory, MemoryShare: memory, Model: model}
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

// typical is the median of a figure over all ranks with the same device type and element type. A rank without a known device type has its own figure.
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

// Scores lists the ranks' compute scores.
func (p *Ranks) Scores() []float64 {
	var scores []float64
	for _, r := range p.Ranks {
		scores = append(scores, r.ComputeScore)
	}
	return scores
}

// Seal sets the fingerprint of the whole from those of the ranks.
func (p *Ranks) Seal() {
	prints := make([]string, len(p.Ranks))
	for i, r := range p.Ranks {
		prints[i] = r.Fingerprint
	}
	p.Fingerprint = hardware.Fingerprint(prints...)
}

// Match gives an entry to each rank of a run, by the fingerprints of the ranks' hardware. A rank gets the entry of the same number, or of another
// rank on hardware of the same fingerprint. Where a rank has none the whole profile does not fit: the answer is nil and says, for a
// warning, why.
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
