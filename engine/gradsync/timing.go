package gradsync

import (
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// Times are the times of communication in one optimizer step on this rank.
type Times struct {
	// Busy is the time of the all-reduces of gradients: transfer, reduction and waiting for slower ranks. The time of
	// an all-reduce starts when its bucket is ready and the previous all-reduce has ended.
	Busy time.Duration
	// Exposed is the part of Busy that the training goroutine waited for in Finish, after the backward pass. Hidden is
	// the rest.
	Exposed, Hidden time.Duration
	// Exchanges is the time for which the passes of all micro-batches were blocked on exchanges of batch normalisation.
	// It consists of waiting for slower ranks, and of transfers without other work to do. If time is modelled,
	// Exchanges is 0. If the device does not measure waiting, Exchanges is the whole time of the exchanges.
	Exchanges time.Duration

	Bytes   int64 // size of the summed buffers, in their type on the wire
	Buckets int
}

// Reduction is one all-reduce of an optimizer step. Times have the meaning of Times.Busy and Times.Exposed.
type Reduction struct {
	Name          string
	Bytes         int64
	Busy, Exposed time.Duration
}

// Reductions returns the all-reduces of the last step, in their order. The slice is valid until the next Finish.
func (s *Sync) Reductions() []Reduction { return s.reductions }

// note sets the times of all-reduce i, which ran from begun to ended. The backward pass ended at the time backward. All
// three times are on the same clock.
func (s *Sync) note(i int, begun, ended, backward time.Duration) {
	r := s.runs[i]
	s.reductions[i] = Reduction{Name: r.name, Bytes: r.bytes, Busy: max(0, ended-begun),
		Exposed: max(0, ended-max(begun, backward))}
}

// times computes the times of a step. The training goroutine began to wait at the time begun, on the clock of spans. On
// a device that models time all values are modelled.
func (s *Sync) times(begun, waited time.Duration) Times {
	t := Times{Exposed: waited}
	if end, ok := s.backwardEnd.(device.ClockedEvent); ok && s.modelled {
		t.Exposed = 0
		over := time.Duration(0) // end of the previous all-reduce
		for i, r := range s.runs {
			begun := max(over, r.ready.(device.ClockedEvent).CompletedAt())
			over = r.reduced.(device.ClockedEvent).CompletedAt()
			t.Busy += over - begun
			t.Exposed = max(t.Exposed, over-end.CompletedAt())
			s.note(i, begun, over, end.CompletedAt())
		}
	} else {
		for i, r := range s.runs {
			t.Busy += r.span.took()
			s.tell(true, r.name, &r.span, r.bytes)
			s.note(i, time.Duration(r.span.begun.Load()), time.Duration(r.span.ended.Load()), begun)
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

// Exchanges returns the time of exchanges in the passes since the last Finish. It equals Times.Exchanges once the last
// backward pass has ended.
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

// takeSpan reads and resets the span of a point's exchange, so that the next exchange may begin.
func (s *Sync) takeSpan(p *point) {
	s.tell(false, p.Name, p.span, int64(p.Elements)*p.DType.Size())
	s.exchanged += p.span.take()
}

// tell calls the watcher for an operation that has ended.
func (s *Sync) tell(gradients bool, name string, sp *span, bytes int64) {
	if s.watcher != nil && sp.took() > 0 {
		s.watcher(gradients, name, epoch.Add(time.Duration(sp.begun.Load())), epoch.Add(time.Duration(sp.ended.Load())),
			bytes)
	}
}

// takeExchanges returns Exchanges and resets it to 0.
func (s *Sync) takeExchanges() time.Duration {
	t := s.Exchanges()
	s.exchanged, s.stream = 0, nil
	return t
}

// epoch is the zero of the clock of spans.
var epoch = time.Now()

func now() int64 { return int64(time.Since(epoch)) }

// span records when an operation of a communicator begins and ends, by wrapping its events.
type span struct {
	begun, ended atomic.Int64 // now(); 0: not yet
}

func (s *span) reset() {
	s.begun.Store(0)
	s.ended.Store(0)
}

// took returns the operation's duration, 0 if it has not run.
func (s *span) took() time.Duration {
	begun, ended := s.begun.Load(), s.ended.Load()
	if begun == 0 || ended < begun {
		return 0
	}
	return time.Duration(ended - begun)
}

// take returns the operation's duration and resets the span.
func (s *span) take() time.Duration {
	t := s.took()
	s.reset()
	return t
}

// start wraps an After event and records when its operation starts. The communicator waits for the event when it is the
// operation's turn, and the operation starts when the event is complete.
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

// Unwrap returns the device's event.
func (e start) Unwrap() device.Event { return e.Event }

// end is an event that records when it is completed.
type end struct {
	device.Event
	span *span
}

func (e end) Complete() error {
	e.span.ended.Store(now())
	return e.Event.Complete()
}

// Unwrap returns the device's event.
func (e end) Unwrap() device.Event { return e.Event }

// Wrappers of the events of a device that models time implement the same optional interfaces as these events. They also
// record real time.
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

// timed wraps the events of an operation for its communicator. Programs use the events without wrappers.
func timed(after, done device.Event, s *span) (device.Event, device.Event) {
	a, d := start{after, s}, end{done, s}
	clockedAfter, ok := after.(device.ClockedEvent)
	clockedDone, ok2 := done.(device.ClockedEvent)
	if ok && ok2 {
		return clockedStart{a, clockedAfter}, clockedEnd{d, clockedDone}
	}
	return a, d
}
