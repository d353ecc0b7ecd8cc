package train

import (
	"context"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// consensus exchanges the measurements and the requests of the ranks, so that all ranks act after the same step. It
// implements replica.Exchange.
type consensus struct {
	group     *gradsync.Group // nil for a single rank
	at        *progress
	own       func(step int64) (wish, error) // returns this rank's requests after a step
	telemetry func() telemetry.Sample        // Options.Telemetry
	links     func() LinkReport              // Options.Links

	reports  *reports            // nil for a single rank
	asked    wish                // requests of all ranks after the last step, combined
	latest   RankStep            // of this rank in the step in progress
	before   replica.StepTimes   // times of this rank's previous step
	reported []RankStep          // reports of the last step; equal on all ranks
	timed    []replica.StepTimes // times of all ranks in the step before the last report, all of them measured
	ranks    []RankStep          // as reported, but with this rank's values of the last step
	alone    [1]RankStep
}

// open allocates the memory of the reports.
func (c *consensus) open(dev device.Device) (err error) {
	if c.group != nil {
		c.reports, err = newReports(dev, c.group)
	}
	return err
}

// close frees the memory of the reports. No exchange may be in flight.
func (c *consensus) close() error { return c.reports.close() }

// leads reports whether this rank saves checkpoints.
func (c *consensus) leads() bool { return c.group.Rank() == 0 }

// wishes returns the requests before the next step. All ranks must act after the same step. With peers, wishes
// therefore returns the requests that the ranks exchanged after the last step.
func (c *consensus) wishes() wish {
	if c.group != nil {
		return c.asked
	}
	w, _ := c.own(c.at.step) // no error, because a single rank never changes shares
	return w
}

// begin begins a step. The parameter gap is the training time between the previous step and this one.
func (c *consensus) begin(gap time.Duration) {
	c.latest = RankStep{Other: gap}
	c.timed = c.timed[:0]
}

// describe sets those fields of this rank's latest RankStep that are already known.
func (c *consensus) describe(out *replica.StepResult) {
	own := &c.latest
	own.Sums, own.Times, own.Replaced, own.Positions = out.Sums, out.Times, out.Replaced, out.Positions
	own.Telemetry, own.Links = telemetry.Unknown(), unknownLinks()
	if c.telemetry != nil {
		own.Telemetry = c.telemetry()
	}
	if c.links != nil {
		own.Links = c.links()
	}
}

// Send implements replica.Exchange: it reports this rank's part of the step, and its requests.
func (c *consensus) Send(out replica.StepResult) (collective.Op, error) {
	c.describe(&out)
	sent := c.latest
	complete(&sent.Times, &c.before) // values that are not known yet are replaced by those of the previous step
	want, err := c.own(c.at.step + 1)
	if err != nil {
		return nil, err
	}
	c.reports.put(&sent, want)
	return c.reports.rows.Op(), nil
}

// Received implements replica.Exchange: it keeps the reports and requests of all ranks.
func (c *consensus) Received() (count int, err error) {
	all, asked, err := c.reports.read()
	c.time(all)
	c.reported, c.asked = append(c.reported[:0], all...), asked // a copy, because evaluations write to all
	for i := range c.reported {
		c.reported[i].Positions = c.latest.Positions
	}
	return total(c.reported).Count, err
}

// time completes the times of all ranks in the last reported step. The missing times are in the next report.
func (c *consensus) time(next []RankStep) {
	c.timed = c.timed[:0]
	if len(next) != len(c.reported) { // the first report of a process, or one that was damaged
		return
	}
	for rank := range next {
		c.timed = append(c.timed, c.reported[rank].Times)
		complete(&c.timed[rank], &next[rank].Times)
	}
}

// complete exchanges the times of the last step that no report contains yet. All ranks call it after the same step.
func (c *consensus) complete(ctx context.Context) error {
	if c.group == nil || len(c.reported) == 0 {
		return nil
	}
	want, err := c.own(c.at.step)
	if err != nil {
		return err
	}
	all, _, err := c.reports.exchange(ctx, RankStep{Times: c.before}, want) // the next report repeats the requests
	if err == nil {
		c.time(all)
	}
	return err
}

// reportAlone keeps the report of a single rank, which exchanges nothing.
func (c *consensus) reportAlone(out *replica.StepResult) {
	c.describe(out)
	c.reported = append(c.reported[:0], c.latest)
	c.timed = append(c.timed[:0], out.Times)
}

// end ends a step. It returns the RankSteps of all ranks for a StepRecord: this rank's values as measured, those of the
// other ranks as reported.
func (c *consensus) end(out *replica.StepResult) []RankStep {
	own := c.latest
	c.before, own.Times, own.Buckets, own.Bytes = out.Times, out.Times, out.Buckets, out.Bytes
	c.ranks = append(c.ranks[:0], c.reported...)
	for i := range c.ranks {
		c.ranks[i].Buckets, c.ranks[i].Bytes = out.Buckets, out.Bytes // equal on all ranks
	}
	c.ranks[c.group.Rank()] = own
	return c.ranks
}

// evaluated returns the RankSteps of all ranks for one batch of an evaluation.
func (c *consensus) evaluated(uncancelled context.Context, own RankStep) ([]RankStep, error) {
	if c.group == nil {
		c.alone[0].Sums, c.alone[0].Replaced = own.Sums, own.Replaced
		return c.alone[:], nil
	}
	want, err := c.own(c.at.step)
	if err != nil {
		return nil, err
	}
	all, asked, err := c.reports.exchange(uncancelled, own, want)
	c.asked = asked
	return all, err
}

// Intervals at which rank 0 checks whether the disk has answered. Meanwhile, the other ranks wait for the report of
// rank 0, so mostPolled must be much shorter than all time-outs.
const (
	leastPolled = time.Millisecond
	mostPolled  = 250 * time.Millisecond
)

// await waits until ready returns true on rank 0, or until a rank stops the run. Only rank 0 calls ready. It calls
// waits when it begins to wait, and calls the function that waits returned at the end. All ranks call await after the
// same step. While rank 0 waits, the ranks exchange reports, so no rank considers rank 0 lost.
func (c *consensus) await(ctx context.Context, ready func() bool, waits func() (end func())) (err error) {
	end := func() {}
	defer func() { end() }()
	waiting := false
	for poll := leastPolled; ; poll = min(2*poll, mostPolled) {
		want, err := c.own(c.at.step)
		if err != nil {
			return err
		}
		if want.saving = c.leads() && !ready(); c.group != nil { // saving: rank 0 waits
			if _, want, err = c.reports.exchange(context.WithoutCancel(ctx), RankStep{}, want); err != nil {
				return err
			}
			c.asked.stop = c.asked.stop || want.stop
		}
		if !want.saving || want.stop {
			return nil
		}
		if !c.leads() {
			continue
		}
		if !waiting {
			waiting, end = true, waits()
		}
		time.Sleep(poll)
	}
}
