package replica

import (
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/timeline"
)

// StepTimes are the times of the parts of a step on one rank. Forward includes the preparation of the working copies of
// the parameters. Communication is the time for which the rank waits for gradient sums after the backward pass.
type StepTimes struct {
	Data, Forward, Backward, Communication, Optimizer time.Duration

	Hidden    time.Duration // communication time during the backward pass; not included in Total
	Exchanges time.Duration // wait for exchanges of batch normalisation; part of Forward and Backward
}

// Total returns the time of the whole step.
func (t StepTimes) Total() time.Duration {
	return t.Data + t.Forward + t.Backward + t.Communication + t.Optimizer
}

// part is a category of the time of a step.
type part int

const (
	noPart part = iota // time between parts, which is not counted
	dataPart
	forwardPart
	backwardPart
	communicationPart
	optimizerPart
)

var partNames = [...]string{"", "data", "forward", "backward", "communication", "optimizer"}

// add adds duration to the time of part p.
func (t *StepTimes) add(p part, duration time.Duration) {
	switch p {
	case dataPart:
		t.Data += duration
	case forwardPart:
		t.Forward += duration
	case backwardPart:
		t.Backward += duration
	case communicationPart:
		t.Communication += duration
	case optimizerPart:
		t.Optimizer += duration
	}
}

// clock measures the parts of a step. On devices with asynchronous streams, the device measures the time: a mark in
// the stream ends each part. The clock reads the marks after the stream has passed them.
type clock struct {
	at    time.Time
	rec   *timeline.Recorder // nil: no recording
	marks device.MarkingStream
	laps  []part // parts between successive marks
}

// start starts the clock of the first part of a step, which a stream computes. The recorder may be nil.
func (c *clock) start(stream device.Stream, rec *timeline.Recorder) error {
	c.marks, _ = stream.(device.MarkingStream) // nil while each launch is timed on the host
	c.rec = rec
	err := c.restart()
	if c.rec != nil && c.marks != nil {
		c.rec.Begin(c.at)
	}
	return err
}

// lap ends part p of the step, which began at the previous call of lap or at start.
func (c *clock) lap(times *StepTimes, p part) error {
	if c.marks != nil {
		if len(c.laps) == device.MaxMarks-1 { // only if a step has very many micro-batches
			if err := c.marks.Sync(); err != nil {
				return err
			}
			if err := c.read(times); err != nil {
				return err
			}
		}
		c.laps = append(c.laps, p)
		return c.marks.Mark(len(c.laps))
	}
	now := time.Now()
	times.add(p, now.Sub(c.at))
	if c.rec != nil && p != noPart {
		c.rec.Part(partNames[p], c.at, now)
	}
	c.at = now
	return nil
}

// read adds the times between the marks that the stream has passed, and starts the next part.
func (c *clock) read(times *StepTimes) error {
	if c.marks == nil {
		return nil
	}
	for i, p := range c.laps {
		if p == noPart {
			continue
		}
		took, err := c.marks.Between(i, i+1)
		if err != nil {
			return err
		}
		times.add(p, took)
	}
	if c.rec != nil && len(c.laps) > 0 {
		if err := c.note(time.Now()); err != nil {
			return err
		}
	}
	return c.restart()
}

// note passes the times of the parts to the recorder. The last part ended at now.
func (c *clock) note(now time.Time) error {
	n := len(c.laps)
	before, err := c.marks.Between(0, n)
	begin := now.Add(-before)
	for i, p := range c.laps {
		end := now
		if err == nil && i+1 < n {
			before, err = c.marks.Between(i+1, n)
			end = now.Add(-before)
		}
		if err != nil {
			return err
		}
		if p != noPart {
			c.rec.PartAt(partNames[p], begin, end.Sub(begin))
		}
		begin = end
	}
	return nil
}

func (c *clock) restart() error {
	c.at, c.laps = time.Now(), c.laps[:0]
	if c.marks == nil {
		return nil
	}
	return c.marks.Mark(0)
}
