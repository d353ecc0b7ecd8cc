package gradsync

import (
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
)

// Times are where the communication of one optimizer step went, on this rank.
type Times struct {
	// Busy is the time of all-reduces of gradients, from when their bucket was ready and its turn had come: transfer, reduction and waiting for
	// slower ranks.
	Busy time.Duration
	// Exposed is what of it the training goroutine waited for in Finish, after the backward pass; the rest was Hidden behind it.
	Exposed, Hidden time.Duration
	// Exchanges is how long the passes of all micro-batches stood still for exchanges of batch normalisation: their transfer as far as nothing was to be
	// done meanwhile, and waiting for slower ranks. 0 where time is modelled. On a device that does not tell it is the whole time of the exchanges.
	Exchanges time.Duration

	Bytes   int64 // of the buffers that were summed, in the type that they have on the wire
	Buckets int
}

// times adds up a step. On a device that models time all of it is modelled.
func (s *Sync) times(waited time.Duration) Times {
	t := Times{Exposed: waited}
	if end, ok := s.backwardEnd.(device.ClockedEvent); ok && s.modelled {
		t.Exposed = 0
		over := time.Duration(0) // the all-reduce before
		for _, r := range s.runs {
			begun := max(over, r.ready.(device.ClockedEvent).CompletedAt())
			over = r.reduced.(device.ClockedEvent).CompletedAt()
			t.Busy += over - begun
			t.Exposed = max(t.Exposed, over-end.CompletedAt())
		}
	} else {
		for _, r := range s.runs {
			t.Busy += r.span.took()
			s.tell(true, r.op.(collective.AllReduce).Name, &r.span, r.bytes)
		}
	}
	t.Exchanges = s.takeExchanges()
	for _, r := range s.runs {
		t.Bytes += r.bytes
	}
	t.Buckets = len(s.bucket)
	t.Hidden = max(0, t.Busy-t.Exposed)
	return t
}

// Exchanges is the time of exchanges in the passes that have ended since the last Finish: Times.Exchanges, as soon as the last
// backward pass is over.
func (s *Sync) Exchanges() time.Duration {
	for i := range s.points {
		s.takeSpan(&s.points[i])
	}
	if s.modelled {
		return 0
	}
	if s.stream != nil {
		if waited, known := s.stream.Waited(); known {
			return waited - s.waitedBefore
		}
	}
	return s.exchanged
}

// takeSpan ends a point's exchange: the next may begin.
func (s *Sync) takeSpan(p *point) {
	s.tell(false, p.Name, p.span, int64(p.Elements)*p.DType.Size())
	s.exchanged += p.span.take()
}

// tell the watcher of an operation that has run.
func (s *Sync) tell(gradients bool, name string, sp *span, bytes int64) {
	if s.watcher != nil && sp.took() > 0 {
		s.watcher(gradients, name, epoch.Add(time.Duration(sp.begun.Load())), epoch.Add(time.Duration(sp.ended.Load())), bytes)
	}
}

// takeExchanges is Exchanges, which begin again at 0.
func (s *Sync) takeExchanges() time.Duration {
	t := s.Exchanges()
	s.exchanged, s.stream = 0, nil
	return t
}

// epoch is when the clock of spans began.
var epoch = time.Now()

func now() int64 { return int64(time.Since(epoch)) }

// span notes when an operation of a communicator begins and ends, by standing in for its events.
type span struct {
	begun, ended atomic.Int64 // now(); 0: not yet
}

func (s *span) reset() {
	s.begun.Store(0)
	s.ended.Store(0)
}

// took is 0 for an operation that has not run.
func (s *span) took() time.Duration {
	begun, ended := s.begun.Load(), s.ended.Load()
	if begun == 0 || ended < begun {
		return 0
	}
	return time.Duration(ended - begun)
}

// take is took, once: the span begins again.
func (s *span) take() time.Duration {
	t := s.took()
	s.reset()
	return t
}

// start is an event that notes when the communicator, whose turn it is, finds it complete.
type start struct {
	device.Event
	span *span
}

func (e start) WaitHost(limit time.Duration) error {
	err := e.Event.WaitHost(limit)
	if err == nil {
		e.span.begun.CompareAndSwap(0, now())
	}
	return err
}

func (e start) Done() bool {
	done := e.Event.Done()
	if done {
		e.span.begun.CompareAndSwap(0, now())
	}
	return done
}

// Unwrap is the device's own event.
func (e start) Unwrap() device.Event { return e.Event }

// end is an event that notes when it is completed.
type end struct {
	device.Event
	span *span
}

func (e end) Complete() error {
	e.span.ended.Store(now())
	return e.Event.Complete()
}

// Unwrap is the device's own event.
func (e end) Unwrap() device.Event { return e.Event }

// The events of a device that models time stay such events; what they note is real time, too.
type (
	clockedStart struct {
		start
		clock device.ClockedEvent
	}
	clockedEnd struct {
		end
		clock device.ClockedEvent
	}
)

func (e clockedStart) CompletedAt() time.Duration        { return e.clock.CompletedAt() }
func (e clockedStart) CompleteAt(at time.Duration) error { return e.clock.CompleteAt(at) }
func (e clockedEnd) CompletedAt() time.Duration          { return e.clock.CompletedAt() }
func (e clockedEnd) CompleteAt(at time.Duration) (err error) {
	e.span.ended.Store(now())
	return e.clock.CompleteAt(at)
}

// timed wraps the events of an operation for its communicator; programs use the events themselves.
func timed(after, done device.Event, s *span) (device.Event, device.Event) {
	a, d := start{after, s}, end{done, s}
	clockedAfter, ok := after.(device.ClockedEvent)
	clockedDone, ok2 := done.(device.ClockedEvent)
	if ok && ok2 {
		return clockedStart{a, clockedAfter}, clockedEnd{d, clockedDone}
	}
	return a, d
}
