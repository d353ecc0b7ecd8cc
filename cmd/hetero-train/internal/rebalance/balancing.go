package rebalance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/hybrid"
	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/account"
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

// New gathers the properties of all ranks. All ranks must call New. In a run of one rank, the Balancer serves only
// SaveProfile, which writes the compute score.
func New(ctx context.Context, a *assembly.Run) (*Balancer, error) {
	b := &Balancer{run: a, cfg: a.Process.Cfg}
	self := a.Rank.DescribeItself()
	own := knownRank{Kind: a.Rank.Device.Info().Kind, Device: self.DeviceType, Fingerprint: self.Fingerprint,
		MemoryBytes: self.MemoryBytes, AtStart: a.Process.Cfg.Profile.AtStart}
	if a.Process.Cfg.Profile.GPUProfiles == "" && own.AtStart != "off" && a.Foreign == nil {
		own.Kept = b.loadFigures(&self)
	}
	own.Profile = self
	if f := a.Foreign; f != nil && own.AtStart != "off" {
		own.Profile.Measured.TFLOPS, own.Profile.Measured.Memory.Copy = f.TFLOPS, f.Copy
	}
	if b.learns() && a.Rank.Team != nil {
		curve, err := b.openCache(own.Device)
		if f := a.Foreign; f != nil && b.cache != nil && len(f.Curve) > 0 {
			if curve = f.Curve; err == nil {
				err = b.cache.Store(b.key(own.Device), curve)
			}
		}
		if own.Curve = curve; err != nil {
			b.log().Warn("the cached step-time curve of this device cannot be used; the balancer fits a new curve",
				"error", err)
		}
	}
	var err error
	b.known, err = process.GatherAll(ctx, a.Rank.Team, "properties of the ranks", "properties of rank", own)
	if err != nil {
		return nil, err
	}
	if err := b.gatherScores(ctx); err != nil {
		return nil, err
	}
	b.logRanks()
	return b, nil
}

// gatherScores sets the compute scores of all ranks. They come from the profile that rank 0 sends. Without a profile of
// this hardware, they come from cached or new measurements of the ranks.
func (b *Balancer) gatherScores(ctx context.Context) error {
	if err := b.givenScores(ctx); err != nil || b.scores != nil {
		return err
	}
	p, missing, err := b.startProfile(ctx)
	if err != nil {
		return err
	}
	if b.missing = missing; p != nil {
		b.scores = p.Scores()
	}
	if b.run.Rank.Team.Leads() {
		b.profile = p
	}
	return nil
}

// LoadProfiles reads the file that profile.gpu_profiles names. It returns nil if the key is empty.
func LoadProfiles(c *config.Config) (*profiles.Ranks, error) {
	if c.Profile.GPUProfiles == "" {
		return nil, nil
	}
	p, err := profiles.Load(c.Profile.GPUProfiles)
	if err != nil {
		return nil, exit.Usagef("profile.gpu_profiles: %w", err)
	}
	return p, nil
}

// givenProfile is the message with which rank 0 sends the contents of its profile.
type givenProfile struct {
	Scores []float64      // compute scores by rank; nil if there is no profile of this hardware
	Curves []divide.Curve // step-time curves by rank; nil unless the profile contains the curves of all ranks
	Errors []float64      // relative standard errors of the curves' times, by rank
}

// givenScores sets the scores and the curves of all ranks from the file that profile.gpu_profiles names.
func (b *Balancer) givenScores(ctx context.Context) error {
	err := b.run.Rank.Team.Send(ctx, "compute scores", &b.given, func() error {
		path := b.cfg.Profile.GPUProfiles
		p, err := LoadProfiles(b.cfg)
		if p == nil || err != nil {
			return err
		}
		fingerprints := make([]string, len(b.known))
		for rank, k := range b.known {
			fingerprints[rank] = k.Fingerprint
		}
		ranks, mismatch := p.Match(fingerprints)
		if mismatch != "" {
			b.log().Warn("profile.gpu_profiles does not match this hardware and is ignored: "+mismatch, "file", path)
			return nil
		}
		for rank, r := range ranks {
			if got, want := r.Measured.DType, b.run.Rank.Types[rank].Type; got != "" && got != want {
				b.log().Warn("a rank trains in another precision than profile.gpu_profiles was measured in, so the first shares may be less accurate",
					"file", path, "rank", rank, "got", got, "want", want)
			}
		}
		b.profile = &profiles.Ranks{Origin: p.Origin, Score: p.Score, Ranks: ranks}
		b.profile.Seal()
		b.given.Scores = b.profile.Scores()
		if b.traits().Learns {
			b.given.Curves, b.given.Errors = b.profiledCurves(ranks)
		}
		return nil
	})
	b.scores = b.given.Scores
	return err
}

// profiledCurves returns the step-time curves of a profile and their errors, by rank. It returns nil if a rank has no
// step times. It returns nil and logs a warning if the step times of a rank were measured with other settings than
// those of this run.
func (b *Balancer) profiledCurves(ranks []profiles.Rank) (list []divide.Curve, errors []float64) {
	list = make([]divide.Curve, len(ranks))
	for rank, r := range ranks {
		if r.StepTimes == nil {
			return nil, nil
		}
		want := assembly.CurveSetting(b.cfg, b.run.Rank.Types[rank].Type)
		if b.run.Foreign != nil {
			want = b.run.Foreign.Setting
		}
		if got := r.StepTimes.Setting; got != want {
			b.log().Warn("the step times in profile.gpu_profiles are of another model or of other settings, and are ignored; to measure those of this run, run hetero-train profile with its configuration file",
				"file", b.cfg.Profile.GPUProfiles, "rank", rank, "got", got, "want", want)
			return nil, nil
		}
		errors = append(errors, r.StepTimes.Error)
		for _, p := range r.StepTimes.Points {
			list[rank] = append(list[rank], divide.Point{Samples: float64(p.Samples), Seconds: float64(p.Seconds)})
		}
	}
	return list, errors
}

// traits returns the traits of the configured policy.
func (b *Balancer) traits() balancer.Traits { return parts.PolicyTraits(b.cfg.Balance.Options) }

// learns reports whether the run reads and writes the cache of step-time curves.
func (b *Balancer) learns() bool {
	c := b.cfg.Balance
	return b.traits().Learns && c.CurveCache == "auto" && len(c.FixedShares) == 0
}

// Cached returns the step-time curve that a run would read from the cache for this rank. It returns nil if there is
// none.
func Cached(a *assembly.Run) (divide.Curve, error) {
	b := &Balancer{run: a, cfg: a.Process.Cfg}
	if !b.learns() {
		return nil, nil
	}
	return b.openCache(a.Rank.DescribeItself().DeviceType)
}

// openCache opens the user's cache of curves and returns the cached curve of a device.
func (b *Balancer) openCache(device string) (divide.Curve, error) {
	dir, err := parts.UserCache("curves")
	if err != nil {
		return nil, err
	}
	b.cache = curves.Open(dir)
	return b.cache.Load(b.key(device))
}

// key returns the cache key of a device's curve. The key contains all values on which the curve depends.
func (b *Balancer) key(device string) string {
	c := b.cfg
	if f := b.run.Foreign; f != nil {
		return fmt.Sprintf("%s; %s", device, f.Setting)
	}
	return fmt.Sprintf("%s; %s; %s, %d data workers", device, assembly.CurveSetting(c, b.run.Rank.Precision.String()),
		c.Data.Dataset, c.Data.Workers)
}

// log returns the logger of the load balancer.
func (b *Balancer) log() *slog.Logger { return b.run.Process.Opts.LogOf(logs.ComponentBalancer) }

// logRanks logs the device, memory and score of each rank, on rank 0.
func (b *Balancer) logRanks() {
	if b.run.Rank.Team == nil || !b.run.Rank.Team.Leads() {
		return
	}
	log := b.log()
	log.Info(fmt.Sprintf("Registered %d nodes", len(b.known)))
	for rank, k := range b.known {
		line := fmt.Sprintf("Node %d: Compute score unknown (%s), Memory %dMB", rank, b.missing, k.MemoryBytes>>20)
		if b.scores != nil {
			line = profiles.Rank{Rank: rank, ComputeScore: b.scores[rank], MemoryBytes: k.MemoryBytes}.String()
		}
		log.Info(line, "device", k.Device)
	}
}

// Divide creates the policy and returns the first shares. The parameter limits has the maximum number of samples of a
// micro-batch that each rank's memory can hold.
func (b *Balancer) Divide(limits []int) ([]int, error) {
	c := b.cfg
	var err error
	if b.Policy, err = b.policy(limits); err != nil {
		return nil, err
	}
	b.opening = balancer.Opening(b.Policy, c.Balance.Interval)
	if b.Policy, err = hybrid.Explained(b.Policy, b.options); err != nil {
		return nil, exit.Usagef("balance: %w", err)
	}
	ranks := len(b.known)
	b.step = balancer.Step{Shares: make([]int, ranks)}
	for _, list := range []*[]float64{&b.step.Own, &b.step.Update, &b.step.Pause, &b.step.Data, &b.step.Utilization,
		&b.step.Memory} {
		*list = make([]float64, ranks)
	}
	b.health, b.observed = make([]telemetry.Window, ranks), make([]straggler.Observation, ranks)
	b.detector, b.healthy = straggler.NewDetector(ranks), straggler.NewReferences(ranks)
	types := make([]string, ranks)
	for rank, k := range b.known {
		types[rank] = k.Device
	}
	b.detector.SetTypes(types)
	if a := b.run; a.Process.Opts.Comparison != nil {
		b.Comparison = newComparison(a.Process.Opts.Comparison, b)
	}
	shares := b.Policy.Start()
	if b.run.Rank.Team.Leads() {
		b.logShares(shares)
		b.warnOfEnd(b.opening)
	}
	return shares, nil
}

// policy sets the options, which include limits, and returns a policy with these options.
func (b *Balancer) policy(limits []int) (balancer.Policy, error) {
	c := b.cfg
	b.options = balancer.Options{Batch: parts.BatchOf(c), Ranks: len(b.known), Interval: c.Balance.Interval,
		Slowdown: c.Balance.MaxSlowdownPercent / 100, Bench: c.Balance.BenchWorthless}
	b.options.Limits = limits
	b.know()
	p, err := parts.MakePolicy(b.run.Process.Opts.Env.Catalog, &b.run.Process.Cfg.Balance, c.Balance.Policy, b.options)
	hold := 0
	for _, n := range limits {
		hold += n
	}
	if errors.Is(err, divide.ErrInfeasible) && hold < b.options.Batch.Total { // the replica reports too little memory
		return nil, fmt.Errorf("balance: %w", err)
	}
	if err != nil {
		return nil, exit.Usagef("balance: %w", err)
	}
	return p, nil
}

// Preview returns the shares that Divide would return for these limits. It changes only the options.
func (b *Balancer) Preview(limits []int) ([]int, error) {
	p, err := b.policy(limits)
	if err != nil {
		return nil, err
	}
	return p.Start(), nil
}

// LogBatchSizes logs the initial shares of the ranks (samples of a micro-batch).
func (b *Balancer) LogBatchSizes(shares []int, decidedBy string) {
	b.log().Info("Calculated batch sizes: "+sizes(shares), "policy", decidedBy)
	for rank, n := range shares[:min(len(shares), mostNodes)] {
		b.log().Info(fmt.Sprintf("Node %d: batch_size=%d", rank, n))
	}
}

// mostNodes is the largest number of nodes with a line of their own in the log. The line before has all batch sizes.
const mostNodes = 64

// logShares logs the first shares and the memory limits.
func (b *Balancer) logShares(shares []int) {
	log := b.log()
	b.LogBatchSizes(shares, b.cfg.Balance.Policy)
	if effect := b.traits().WithoutScores; b.scores == nil && effect != "" {
		log.Warn(fmt.Sprintf("policy %s has no compute scores (%s): %s; to measure the scores, run hetero-train profile and pass the resulting file with --gpu-profiles",
			b.cfg.Balance.Policy, b.missing, effect))
	}
	for rank, most := range b.options.Limits {
		if shares[rank] == 0 {
			log.Warn(fmt.Sprintf("rank %d gets no samples: its memory can hold only %d samples of a micro-batch, but shares are multiples of %d",
				rank, most, max(b.options.Unit, 1)), "memory", b.known[rank].MemoryBytes)
		} else if most < b.options.Total {
			log.Info(fmt.Sprintf("rank %d can hold %d samples of a micro-batch", rank, most))
		}
	}
}

// know adds the properties of the ranks to the options of the policy.
func (b *Balancer) know() {
	c, o := b.cfg.Balance, &b.options
	o.Scores = b.scores
	for rank, k := range b.known { // step times also depend on the element type
		o.Types = append(o.Types, k.Device+"; "+b.run.Rank.Types[rank].Type)
	}
	// Use the curves of one source only. Curves of two sources may differ by a constant factor, and the first shares
	// would then be wrong.
	cached := 0
	for _, k := range b.known {
		if o.Curves = append(o.Curves, k.Curve); len(k.Curve) > 0 {
			cached++
		}
	}
	switch {
	case cached < len(b.known) && b.given.Curves != nil:
		o.Curves, o.CurveErrors = b.given.Curves, b.given.Errors
		if b.run.Rank.Team.Leads() {
			b.log().Info("using the step times of profile.gpu_profiles", "file", b.cfg.Profile.GPUProfiles)
		}
	case cached == 0:
		o.Curves = nil
	}
	switch c.Objective {
	case "energy":
		o.Objective, o.Watts, o.IdleWatts = balancer.Energy, c.PowerWatts, c.IdleWatts
		if len(o.IdleWatts) == 0 {
			for _, w := range o.Watts {
				o.IdleWatts = append(o.IdleWatts, 0.3*w)
			}
		}
	case "cost":
		o.Objective, o.Watts = balancer.Cost, c.Prices
	}
}

// sizes formats shares as "{0: 128, 1: 96}".
func sizes(shares []int) string {
	texts := make([]string, len(shares))
	for rank, n := range shares {
		texts[rank] = fmt.Sprintf("%d: %d", rank, n)
	}
	return "{" + strings.Join(texts, ", ") + "}"
}

// ErrCompared is the cause with which a comparison of policies cancels the context of the run after its last round.
var ErrCompared = errors.New("all rounds of the comparison are complete")

// EndBy sets the function with which a comparison of policies cancels the context of the run. No rank needs a message
// for it, because all ranks complete the last round in the same step. EndBy does nothing in runs without a comparison.
func (b *Balancer) EndBy(cancel context.CancelCauseFunc) {
	if b != nil && b.Comparison != nil {
		b.Comparison.finished = func() { cancel(ErrCompared) }
	}
}

// Split implements [train.Splitter].
func (b *Balancer) Split(step int64, ranks []train.RankStep, settling bool) []int {
	if ranks == nil || b.Policy == nil {
		return nil
	}
	b.take(ranks)
	b.step.Settling, b.step.Left = settling, stepsLeft(b.run.Steps, step)
	if b.Comparison != nil {
		return b.Comparison.split()
	}
	d, due := b.Policy.Observe(&b.step)
	if !due {
		return nil
	}
	if len(d.Ranks) == 0 { // a policy that another program implements may give no explanation
		d.Explanation = balancer.Unexplained(len(ranks))
	}
	b.last = d
	b.decisions++
	verdicts := b.judge(step, d)
	b.checkScores(d.Shares, func(rank int) float64 { return d.Ranks[rank].Seconds })
	if b.report != nil {
		b.report.decided(step, d, verdicts)
	}
	for _, watch := range b.watchers {
		watch(b.waiting.Steps, d, verdicts)
	}
	b.keepCurve(false)
	b.waiting.Reset()
	if !d.Changed {
		return nil
	}
	return d.Next
}

// stepsLeft returns the number of steps that follow step. It returns 0 if the length of the run is unknown, or if step
// is the last step.
func stepsLeft(total, step int64) int { return int(min(max(total-step, 0), math.MaxInt32)) }

// take converts the reports of the ranks to the input of the policy.
func (b *Balancer) take(ranks []train.RankStep) {
	s, accumulation := &b.step, b.cfg.Train.MicroBatches()
	exposed, exchanges := math.Inf(1), math.Inf(1)
	s.Seconds, s.Measured = 0, 0
	for r := range ranks {
		rank, t := &ranks[r], &ranks[r].Times
		s.Shares[r] = rank.Samples / accumulation
		s.Update[r], s.Pause[r] = (t.Optimizer + rank.Other).Seconds(), rank.Other.Seconds()
		s.Own[r] = rank.Compute().Seconds() - s.Update[r]
		s.Data[r] = t.Data.Seconds()
		exposed, exchanges = min(exposed, t.Communication.Seconds()), min(exchanges, t.Exchanges.Seconds())
		seconds := (t.Total() + rank.Other).Seconds()
		s.Seconds = max(s.Seconds, seconds)
		// some times in a report are those of the previous step, so the totals of the ranks differ: take their mean
		s.Measured += seconds / float64(len(ranks))
		s.Utilization[r], s.Memory[r] = rank.Telemetry[telemetry.Utilization]/100, rank.Telemetry[telemetry.Memory]/100
		b.health[r].Add(&rank.Telemetry)
	}
	b.waiting.Add(s.Own)
	b.fullLength(ranks)
	s.Exposed = exposed + exchanges // minima over the ranks: longer times contain waits for slower ranks
}

// fullLength converts the times of a step with short samples to the times of a step with samples of full length. This
// makes steps with different sample lengths comparable. In one step, all ranks compute the same number of positions of
// each sample.
func (b *Balancer) fullLength(ranks []train.RankStep) {
	s, positions := &b.step, ranks[0].Positions
	if positions <= 0 || positions >= 1 {
		return
	}
	longer := 0.0
	for r := range ranks {
		passes := s.Own[r] - s.Data[r]
		s.Own[r] = s.Data[r] + passes/positions
		longer = max(longer, passes/positions-passes)
	}
	s.Seconds += longer
	s.Measured += longer
}

// judge returns the verdicts on the ranks for the window that ends: which ranks have a slower type of device, and which
// ranks are sick. It also adds the cause of noise to d.
func (b *Balancer) judge(step int64, d *balancer.Decision) []straggler.Verdict {
	for r := range b.observed {
		o := straggler.Observation{Seconds: d.Ranks[r].Seconds, Samples: d.Shares[r], Data: d.Ranks[r].Data,
			Link: show.NaN, Health: b.health[r].Summary()}
		o.Expected, o.ExpectedError = b.healthy.Expect(r, d.Shares[r])
		b.observed[r] = o
		b.health[r].Reset()
	}
	verdicts, err := b.detector.Observe(step, b.observed)
	if err != nil {
		b.log().Warn("the ranks cannot be checked for stragglers", "error", err)
		return nil
	}
	if d.Lost.Noise >= account.WorthNaming*d.Lost.Step && d.Lost.Step > 0 {
		cause, evidence := b.detector.NoiseCause(b.observed, d.Lost.Noise, d.Noisy)
		d.NoiseCause, d.NoiseEvidence = cause.String(), evidence
	}
	if l, ok := b.Policy.(balancer.Learner); ok {
		b.healthy.Keep(b.detector, d.Shares, l.Curves(), d.Ranks)
	}
	return verdicts
}

// End stores the curves and logs the last state.
func (b *Balancer) End() {
	if b == nil || b.Policy == nil || b.last == nil {
		return
	}
	b.keepCurve(true)
	if b.report != nil {
		b.report.end()
	}
}

// keepCurve stores this rank's curve in the cache. During the run it does so at most once per interval.
func (b *Balancer) keepCurve(end bool) {
	// ripe is the minimum number of decisions before the first write. A curve from fewer decisions can be worse than
	// the cached curve.
	const interval, ripe = time.Minute, 5
	l, ok := b.Policy.(balancer.Learner)
	if b.cache == nil || !ok || b.decisions < ripe || !end && time.Since(b.stored) < interval || b.refused.Load() {
		return
	}
	rank := b.run.Rank.Team.Place.Rank
	b.stored = time.Now()
	if c := l.Curves()[rank]; len(c) > 0 {
		c, key := slices.Clone(c), b.key(b.known[rank].Device)
		b.run.Queue.Do("the cache of step-time curves", 0, func() {
			if err := b.cache.Store(key, c); err != nil {
				b.log().Warn("the step-time curve of this device cannot be cached, so the next run fits it again",
					"error", err)
				b.refused.Store(true)
			}
		})
	}
}
