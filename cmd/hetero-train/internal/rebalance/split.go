package rebalance

import (
	"context"
	"errors"
	"math"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/profiler/account"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

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
		b.report.end(b.last)
	}
}

// EndBy sets the function with which a comparison of policies cancels the context of the run. No rank needs a message
// for it, because all ranks complete the last round in the same step. EndBy does nothing in runs without a comparison.
func (b *Balancer) EndBy(cancel context.CancelCauseFunc) {
	if b != nil && b.Comparison != nil {
		b.Comparison.finished = func() { cancel(ErrCompared) }
	}
}

// ErrCompared is the cause with which a comparison of policies cancels the context of the run after its last round.
var ErrCompared = errors.New("all rounds of the comparison are complete")
