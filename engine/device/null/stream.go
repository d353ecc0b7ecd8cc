package null

import (
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/internal/bookkeeping"
)

// Stream is a stream with a clock. The modelled times of its work advance the clock.
type Stream struct {
	device.Stream
	clock *clock
}

// NewStream implements device.Device; it returns a *Stream, whose clock starts at 0.
func (d *Device) NewStream() (device.Stream, error) {
	c := &clock{dev: d}
	s, err := d.NewStreamOf(c)
	if err != nil {
		return nil, err
	}
	return &Stream{Stream: s, clock: c}, nil
}

// Clock returns the modelled time at which all work of the stream is complete.
func (s *Stream) Clock() time.Duration { return s.clock.now }

// clock implements bookkeeping.Work.
type clock struct {
	dev   *Device
	now   time.Duration // modelled time
	slept time.Duration // part of now during which the stream slept or waited
}

func (c *clock) Now() time.Duration { return c.now }

func (c *clock) Launch(s bookkeeping.Step) error {
	c.now += c.dev.Model().launchTime(s.Kernel)
	return nil
}

func (c *clock) Copy(dst, src device.Region) {
	if to := dst.Host(); to != nil {
		if from := src.Host(); from != nil {
			copy(to, from)
		} else {
			clear(to[:src.Bytes])
		}
	}
	c.now += c.dev.Model().copyTime(src.Bytes)
}

// Settle sleeps for the time by which the clock has advanced, and advances the device's clock.
func (c *clock) Settle() {
	if scale := c.dev.Model().RealTime; scale > 0 && c.now > c.slept {
		time.Sleep(time.Duration(float64(c.now-c.slept) * scale))
	}
	c.slept = c.now
	c.dev.reached(c.now)
}

// Passed counts the time until the completion of the event as slept, because the stream has actually waited during this
// time.
func (c *clock) Passed(at time.Duration) {
	c.now = max(c.now, at)
	c.slept = c.now
}
