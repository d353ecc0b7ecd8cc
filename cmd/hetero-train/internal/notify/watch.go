package notify

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/train"
)

// Watch is the observer that detects stragglers and stalls. Its methods never wait.
type Watch struct {
	sender  *Sender
	event   func() Event // returns an event with the properties of the run
	start   time.Time
	after   time.Duration // time without progress that counts as a stall; 0: none
	stop    chan struct{}
	stopped chan struct{}
	sick    map[int]bool // reported ranks that are still slow; only the training goroutine uses this map

	progress    atomic.Int64 // time of the last progress, in ns since start
	step, steps atomic.Int64
	loss        atomic.Uint64 // training loss of the last step, as the bits of a float64
}

// NewWatch starts to watch for stalls. The caller must close the watch. The parameter event returns an event with the
// properties of the run; the watch sets the other fields.
func NewWatch(s *Sender, after time.Duration, event func() Event) *Watch {
	w := &Watch{sender: s, event: event, start: time.Now(), after: after, stop: make(chan struct{}),
		stopped: make(chan struct{}), sick: map[int]bool{}}
	w.loss.Store(math.Float64bits(math.NaN()))
	go w.watch()
	return w
}

// Close stops the watch.
func (w *Watch) Close() error {
	close(w.stop)
	<-w.stopped
	return nil
}

// Event returns an event with the properties of the run, its latest step and its loss.
func (w *Watch) Event(name, message string) Event {
	e := w.event()
	e.Event, e.Message, e.Time = name, message, time.Now()
	e.Step, e.Steps = w.step.Load(), w.steps.Load()
	if loss := math.Float64frombits(w.loss.Load()); !math.IsNaN(loss) && !math.IsInf(loss, 0) {
		e.Loss = &loss
	}
	return e
}

// watch reports each stall once.
func (w *Watch) watch() {
	defer close(w.stopped)
	if w.after == 0 || !w.sender.Wants(Stalled) {
		<-w.stop
		return
	}
	tick := time.NewTicker(max(w.after/10, 10*time.Millisecond))
	defer tick.Stop()
	reported := int64(-1) // the value of progress at the latest reported stall
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		if last := w.progress.Load(); time.Since(w.start)-time.Duration(last) >= w.after && last != reported {
			reported = last
			w.sender.Send(w.Event(Stalled, fmt.Sprintf("no step, evaluation or checkpoint for %v", w.after)))
		}
	}
}

func (w *Watch) progressed() { w.progress.Store(int64(time.Since(w.start))) }

// StepDone implements [train.Observer].
func (w *Watch) StepDone(r *train.StepRecord) {
	w.step.Store(r.Step)
	w.steps.Store(r.Total)
	w.loss.Store(math.Float64bits(r.Score().Loss))
	w.progressed()
}

// Decided reports each rank whose verdict became "sick".
func (w *Watch) Decided(_ int, _ *balancer.Decision, verdicts []straggler.Verdict) {
	for rank, v := range verdicts {
		if v.Kind != straggler.Sick {
			delete(w.sick, rank)
			continue
		}
		if w.sick[rank] {
			continue
		}
		w.sick[rank] = true
		e := w.Event(Straggler,
			fmt.Sprintf("rank %d is slower than usual: %.1f times its usual step time, cause: %v (%s)", rank, v.Ratio,
				v.Cause, v.Evidence))
		e.Rank = &rank
		w.sender.Send(e)
	}
}

// EvalDone implements train.Observer.
func (w *Watch) EvalDone(train.Evaluation) { w.progressed() }

// RolledBack implements train.Observer.
func (w *Watch) RolledBack(step int64) {
	w.step.Store(step)
	w.progressed()
}

// Saving implements train.Observer.
func (w *Watch) Saving() {}

// Saved implements train.Observer.
func (w *Watch) Saved(checkpoint.Saved, time.Duration) { w.progressed() }

// Warn implements train.Observer.
func (w *Watch) Warn(error) {}
