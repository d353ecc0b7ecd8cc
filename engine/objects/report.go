package objects

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	// quiet is the time without an answer after which a Client says so, and every says how often it repeats this.
	quiet = 2 * time.Second
	every = 10 * time.Second
	// goneTime is the time after an operation without a connection in which HEAD and LIST are tried once only, unless a
	// request gets an answer. A command that asks for several objects, to find out what they are, then fails as fast as
	// one that asks for one.
	goneTime = 15 * time.Second
)

var logger atomic.Pointer[slog.Logger]

// LogTo sets the logger of this process for servers that do not answer; nil means slog.Default().
func LogTo(log *slog.Logger) { logger.Store(log) }

// waiting describes an operation that has no answer yet.
type waiting struct {
	op    string
	name  Name
	begun time.Time
	most  int           // tries
	limit time.Duration // of a try
	until time.Time     // end of the context; zero: none
	tries atomic.Int64
	last  atomic.Pointer[error] // of the last try; nil after an answer
	done  chan struct{}
}

// waitingKey is the key of the *waiting in the contexts of its requests.
type waitingKey struct{}

// watch reports an operation of a server that gives no sign of life for c.quiet, until the operation ends. alive is the
// number of these signs when it began. Operations at the same time share the signs and the reports.
func (c *Client) watch(w *waiting, alive int64) {
	ticks := time.NewTicker(c.quiet)
	defer ticks.Stop()
	for {
		failed := w.last.Load() != nil
		if now := c.alive.Load(); now != alive && !failed {
			alive = now
		} else if c.due(c.age()) {
			c.report(w)
		}
		select {
		case <-w.done:
			return
		case <-ticks.C:
		}
	}
}

// age returns the nanoseconds since the Client was made.
func (c *Client) age() int64 { return int64(time.Since(c.born)) }

// due reports whether no operation has reported for a while.
func (c *Client) due(now int64) bool {
	before := c.reported.Load()
	return (before == 0 || now-before >= int64(every)) && c.reported.CompareAndSwap(before, now)
}

func (c *Client) report(w *waiting) {
	log := logger.Load()
	if log == nil {
		log = slog.Default()
	}
	cause := "no answer yet"
	if err := w.last.Load(); err != nil {
		cause = (*err).Error()
	}
	log.Warn(fmt.Sprintf("the S3 server %s does not answer: %s %s, try %d of %d", c.host, w.op, w.name, w.tries.Load(),
		w.most), "cause", cause, "seconds", int(time.Since(w.begun).Seconds()), "requests", c.flying.Load(),
		"gives_up_within_seconds", int(c.givesUp(w).Seconds()))
}

// givesUp returns the time within which an operation fails if there is no answer.
func (c *Client) givesUp(w *waiting) time.Duration {
	try := w.limit
	if err := w.last.Load(); err != nil && noConnection(*err) {
		try = min(try, connectTime)
	}
	sum, wait := try, c.wait
	for n := 1; n < w.most; n++ {
		if n >= int(w.tries.Load()) {
			sum += wait + try
		}
		wait = min(2*wait, longestWait)
	}
	if !w.until.IsZero() {
		sum = min(sum, max(time.Until(w.until), 0))
	}
	return sum
}
