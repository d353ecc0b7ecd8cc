package crowd

import "time"

// Limits of a Pace. At a larger rate, strangers take more of the CPU that the process needs for training: a refused
// connection costs about 0.4 ms. At a smaller rate, a client waits longer while strangers connect. The kernel holds the
// connections that wait.
const (
	burst = 32
	every = 20 * time.Millisecond
)

// Pace limits the rate of accepted connections, for ports that need few of them: 50 connections per second, after a
// burst of 32. The zero value is ready. One goroutine may use it.
type Pace struct {
	due time.Time // time at which the next connection may come if none came before
}

// Pause returns how long to wait after a connection that came now, at most 20 ms.
func (p *Pace) Pause(now time.Time) time.Duration {
	if earliest := now.Add(-burst * every); p.due.Before(earliest) {
		p.due = earliest
	}
	p.due = p.due.Add(every)
	return p.due.Sub(now)
}
