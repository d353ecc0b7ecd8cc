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
	// goneTime is the time after an operation without a connection in which other operations are tried once only. A
	// command that asks for several objects, to find out what they are, then fails as fast as one that asks for one.
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
	tries atomic.Int64
	last  atomic.Pointer[error] // of the last try
	done  chan struct{}
}

// watch reports an operation that has no answer after c.quiet, until the operation ends. answers is the number of
// answers when it began. Operations at the same time share the reports. A body that arrives slowly is an answer.
func (c *Client) watch(w *waiting, answers int64) {
	ticks := time.NewTicker(c.quiet)
	defer ticks.Stop()
	for {
		failed := w.last.Load() != nil
		if now := c.answers.Load(); now != answers && !failed {
			answers = now
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
	n := w.tries.Load()
	log.Warn(fmt.Sprintf("the S3 server %s does not answer: %s %s, try %d of %d", c.host, w.op, w.name, n, mostTries),
		"cause", cause, "seconds", int(time.Since(w.begun).Seconds()), "requests", c.flying.Load(),
		"gives_up_within_seconds", int((c.longestTry()*time.Duration(mostTries-n+1) + c.waits(int(n))).Seconds()))
}

// longestTry is the time after which a try without an answer fails.
func (c *Client) longestTry() time.Duration {
	if c.answers.Load() == 0 {
		return connectTime // there is no connection
	}
	return answerTime
}

// waits returns the longest sum of the waits after try n.
func (c *Client) waits(n int) (sum time.Duration) {
	wait := c.wait
	for k := 1; k < mostTries; k++ {
		if k >= n {
			sum += wait
		}
		wait = min(2*wait, longestWait)
	}
	return sum
}
