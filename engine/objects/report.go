package objects

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	// quiet is the time without an answer after which a Client logs a report. The constant every is the minimum time
	// between two reports.
	quiet = 2 * time.Second
	every = 10 * time.Second
	// goneTime is the period after an operation without a connection in which HEAD and LIST requests are tried only
	// once. It ends early if a request gets an answer. A command that asks for several objects therefore fails as fast
	// as a command that asks for one.
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
	most  int           // largest number of tries
	limit time.Duration // time limit of a try
	until time.Time     // end of the context; zero: none
	tries atomic.Int64
	last  atomic.Pointer[error] // error of the last try; nil after an answer
	done  chan struct{}
}

// waitingKey is the key of the *waiting in the contexts of its requests.
type waitingKey struct{}

// watch logs reports about an operation until it ends. It logs a report if the server has given no sign of life for
// c.quiet. The parameter alive is the number of signs of life when the operation began. Concurrent operations share
// these signs and the reports.
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

// age returns the nanoseconds since the Client was created.
func (c *Client) age() int64 { return int64(time.Since(c.born)) }

// due reports whether another report is due, because no operation has logged one for the time every.
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
