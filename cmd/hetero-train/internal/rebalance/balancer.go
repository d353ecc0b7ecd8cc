package rebalance

import (
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/curves"
	"github.com/hetero-train/hetero-train/profiler/profiles"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// Balancer divides the batch among the ranks of a run. It implements [train.Splitter]. Every rank runs the same policy
// on the same reports of the ranks. All ranks therefore compute the same shares without a message. Rank 0 logs the
// shares.
type Balancer struct {
	run        *assembly.Run
	cfg        *config.Config
	known      []knownRank     // properties of all ranks, by rank
	scores     []float64       // compute scores by rank; nil if there are none
	given      givenProfile    // scores and curves from the file profile.gpu_profiles
	missing    string          // reason why there are no scores
	profile    *profiles.Ranks // on rank 0: scores with the measurements behind them; nil if there are no scores
	figures    *profiles.Cache // cache of device measurements; nil if the user has no cache
	cache      *curves.Cache
	options    balancer.Options
	Policy     balancer.Policy // nil if the shares are fixed
	Comparison *comparison     // interleaved comparison that replaces the policy; nil in other runs

	opening   int // steps before the first decision; 0: the policy never changes shares
	step      balancer.Step
	health    []telemetry.Window // telemetry of the current window, by rank
	waiting   straggler.Waiting  // waiting times of the current window
	detector  *straggler.Detector
	healthy   *straggler.References
	observed  []straggler.Observation
	last      *balancer.Decision // latest decision; nil before the first decision
	decisions int
	stored    time.Time      // time of the latest write to the cache of curves
	refused   atomic.Bool    // a write to the cache of curves has failed
	report    *balanceReport // nil on all ranks except rank 0
	watchers  []Watcher
}

// Watcher receives each decision, with the number of steps in its window and the verdicts on the ranks (nil if there
// are none). The training goroutine calls the Watcher.
type Watcher func(steps int, d *balancer.Decision, verdicts []straggler.Verdict)

// knownRank contains the properties that a rank sends before training.
type knownRank struct {
	Device      string        `json:"device"` // type of the device, equal on all machines with the same hardware
	Fingerprint string        `json:"fingerprint"`
	Kind        string        `json:"kind"` // kind of the device: cpu, cuda, …
	MemoryBytes int64         `json:"memory_bytes"`
	Curve       divide.Curve  `json:"curve,omitempty"` // step-time curve from earlier runs
	Profile     profiles.Rank `json:"profile"`         // description, with cached measurements if any
	Kept        *keptScore    `json:"kept,omitempty"`  // origin of the cached measurements; nil if there are none
	AtStart     string        `json:"at_start"`        // value of profile.at_start
}

// keptScore is the origin of cached measurements: the time at which they were stored, and the file.
type keptScore struct {
	Created time.Time `json:"created"`
	File    string    `json:"file"`
}

// givenProfile is the message with which rank 0 sends the contents of its profile.
type givenProfile struct {
	Scores []float64      // compute scores by rank; nil if there is no profile of this hardware
	Curves []divide.Curve // step-time curves by rank; nil unless the profile contains the curves of all ranks
	Errors []float64      // relative standard errors of the curves' times, by rank
}

// Watch adds a watcher. It does nothing in a run of one rank.
func (b *Balancer) Watch(w Watcher) {
	if b != nil {
		b.watchers = append(b.watchers, w)
	}
}

// WatchedBy adds each observer that has a method Decided as a watcher.
func (b *Balancer) WatchedBy(observers []train.Observer) {
	for _, o := range observers {
		if w, ok := o.(interface {
			Decided(int, *balancer.Decision, []straggler.Verdict)
		}); ok {
			b.Watch(w.Decided)
		}
	}
}

// Kinds returns the kind of each rank's device, such as "cpu" or "cuda".
func (b *Balancer) Kinds() []string {
	kinds := make([]string, len(b.known))
	for rank, k := range b.known {
		kinds[rank] = k.Kind
	}
	return kinds
}

// Opening returns the number of steps before the first decision; 0 if the policy never changes shares.
func (b *Balancer) Opening() int {
	if b == nil || b.Policy == nil {
		return 0
	}
	return b.opening
}

// HasCurve reports whether a step-time curve of this rank was known at the start.
func (b *Balancer) HasCurve() bool {
	return b != nil && len(b.known[b.run.Process.Opts.Assignment.Rank].Curve) > 0
}

// OfOracle returns the step time of the best shares divided by the step time of the actual shares, at the latest
// decision. It returns NaN if this fraction is unknown.
func (b *Balancer) OfOracle() float64 {
	if b == nil || b.last == nil {
		return math.NaN()
	}
	return b.last.ShareOfOracle()
}

// Reason returns the reason for the latest decision. It returns "" if there is none.
func (b *Balancer) Reason() string {
	if b == nil || b.last == nil {
		return ""
	}
	return b.last.Reason
}

// Quiet reports whether profiling is off in the current step.
func (b *Balancer) Quiet() bool { return b != nil && b.Comparison.quiet() }

// Muted is an observer that passes all events to another observer, except the steps while profiling is off.
type Muted struct {
	train.Observer
	Quiet func() bool
}

// StepDone implements [train.Observer].
func (m Muted) StepDone(r *train.StepRecord) {
	if !m.Quiet() {
		m.Observer.StepDone(r)
	}
}

// traits returns the traits of the configured policy.
func (b *Balancer) traits() balancer.Traits { return parts.PolicyTraits(b.cfg.Balance.Options) }

// log returns the logger of the load balancer.
func (b *Balancer) log() *slog.Logger { return b.run.Process.Opts.LogOf(logs.ComponentBalancer) }
