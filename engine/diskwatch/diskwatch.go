package diskwatch

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// tick is the interval at which Report looks at the operations. It is the resolution of their ages.
	tick = 250 * time.Millisecond
	// longestGap is the longest time between two ticks that is added to the ages. A longer gap means that the process
	// was paused, or got no CPU time.
	longestGap = time.Second
	// Patience is the age at which an operation is first reported. With a smaller value, disks that are only slow would
	// be reported.
	Patience = 3 * time.Second
)

// Watch holds the operations that have begun and have not returned. Its methods are safe for concurrent use. A nil
// Watch holds none.
type Watch struct {
	mu      sync.Mutex
	running []*operation // in the order in which they began
}

type operation struct {
	what   string
	age    time.Duration
	report time.Duration // age at which the operation is reported next
	told   bool          // true after the first report
}

// Begin adds an operation on the file named by the parameter what. The caller calls the function end when the operation
// has returned.
func (w *Watch) Begin(what string) (end func()) {
	if w == nil {
		return func() {}
	}
	o := &operation{what: what, report: Patience}
	w.mu.Lock()
	w.running = append(w.running, o)
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if at := slices.Index(w.running, o); at >= 0 {
			w.running = slices.Delete(w.running, at, at+1)
		}
	}
}

// Oldest returns the file and the age of the oldest operation. It returns "" if no operation is running, or if Report
// is not running.
func (w *Watch) Oldest() (what string, age time.Duration) {
	if w == nil {
		return "", 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.running {
		if o.age > age {
			what, age = o.what, o.age
		}
	}
	return what, age
}

// Reports are the functions that Report calls.
type Reports struct {
	// called for an operation that has not returned: at the age Patience, and each time the age has doubled
	Silent  func(what string, age time.Duration)
	Answers func(what string, age time.Duration) // called when a reported operation has returned
}

// Report measures the ages of operations, and reports those that do not return, until ctx ends.
func (w *Watch) Report(ctx context.Context, r Reports) {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	last := time.Now()
	var told []*operation
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks.C:
			silent, running := w.grow(min(now.Sub(last), longestGap))
			last = now
			told = slices.DeleteFunc(told, func(o *operation) bool {
				if slices.Contains(running, o) {
					return false
				}
				r.Answers(o.what, o.age)
				return true
			})
			for _, o := range silent {
				r.Silent(o.what, o.age)
				if !o.told {
					o.told = true
					told = append(told, o)
				}
			}
		}
	}
}

// grow adds a time to the ages. It returns the operations to report, and all operations.
func (w *Watch) grow(by time.Duration) (silent, running []*operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.running {
		if o.age += by; o.age >= o.report {
			o.report *= 2
			silent = append(silent, o)
		}
	}
	return silent, slices.Clone(w.running)
}
