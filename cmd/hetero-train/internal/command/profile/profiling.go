package profile

import (
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/measure"
	"github.com/hetero-train/hetero-train/profiler/profiles"
	"github.com/hetero-train/hetero-train/profiler/system"
)

// profileBudget contains the time limits of a profile. The sum of the parts is well below limit, and no part begins
// after limit. On a slow device, products, copies and sums may take one pass longer than their time.
type profileBudget struct {
	limit     time.Duration // time of all parts, which begins at rank discovery
	score     time.Duration // time for the measurements of the score, for all ranks of a machine together
	rounds    int           // number of measurements of each rank within score
	slice     time.Duration // maximum time of one measurement
	products  time.Duration // time for each additional element type
	memory    time.Duration // time for reading and writing memory
	copies    time.Duration
	triad     time.Duration
	disk      time.Duration
	diskBytes int64
	links     time.Duration
	allReduce time.Duration
	model     time.Duration // time for the step of the model, which is skipped if less time is left
}

var (
	fullBudget = profileBudget{limit: 55 * time.Second, score: 9 * time.Second, rounds: 7,
		slice: 500 * time.Millisecond, products: 2 * time.Second, memory: 3 * time.Second, copies: 2 * time.Second,
		triad: time.Second, disk: 6 * time.Second, diskBytes: 512 << 20, links: 8 * time.Second,
		allReduce: 8 * time.Second, model: 20 * time.Second}
	quickBudget = profileBudget{limit: 9 * time.Second, score: 2500 * time.Millisecond, rounds: 5,
		slice: 200 * time.Millisecond, products: 400 * time.Millisecond, copies: 300 * time.Millisecond,
		triad: 300 * time.Millisecond, disk: time.Second, diskBytes: 64 << 20, links: 1200 * time.Millisecond,
		allReduce: 1200 * time.Millisecond}
)

// profiling is the state of the measurements of one rank.
type profiling struct {
	flags *profileFlags
	rank  *compute.Rank
	model string // model whose step determines the score; "": none

	budget   profileBudget
	deadline time.Time
	host     system.Host
	gpus     *hardware.GPUs
	report   rankReport
}

// rankReport contains the results that a rank sends to rank 0.
type rankReport struct {
	Rank           profiles.Rank
	Host           *profiles.Host // properties of the machine; only the first rank of each machine sets this field
	HostID         string
	MemoryFraction float64 // memory-bound fraction of the model's step; 0 if unknown
	PerSample      float64 // measured time per sample in a step of the model, s; 0 if unknown
	Links          []measure.Link
	AllReduce      []measure.AllReduced
	Skipped        []string // skipped measurements, of those that all ranks perform together
}

// profileFlags are the flags of command profile.
type profileFlags struct {
	quick, json bool
	watch       bool
	folder      string
	assigned    cli.LauncherFlags
}

// folder returns the folder for the files of profiles.
func (p *profiling) folder() string {
	if p.flags.folder != "" {
		return p.flags.folder
	}
	e := p.rank.Process.Cfg.Experiment
	return filepath.Join(e.OutputDir, e.Name, "configs")
}
