package crowd

import (
	"maps"
	"time"
)

// Limits of a Pace. At a larger rate, strangers take more of the CPU that the process needs for training: a connection
// that is served and refused costs about 0.4 ms. At a smaller rate, a client waits longer while strangers connect from
// its address.
const (
	burst = 32
	every = 50 * time.Millisecond
	// mostWait is the longest wait of a connection. At most 20 connections of an address wait.
	mostWait = time.Second
	// mostPaced is the number of addresses that a Pace remembers. Strangers with more addresses are limited less.
	mostPaced = 1024
)

// Pace limits the rate of connections of each address, for ports that need few of them: 20 connections per second,
// after a burst of 32. Connections of one address never delay those of another one. The zero value is ready. One
// goroutine may use it.
type Pace struct {
	due map[string]time.Time // by address: time at which the next connection may come if none came before
}

// Admit returns how long a connection of an address that came now must wait before it is served. If it would wait for
// more than a second, ok is false: the server closes it. Addresses are those of Address.
func (p *Pace) Admit(from string, now time.Time) (wait time.Duration, ok bool) {
	earliest := now.Add(-burst * every)
	due, known := p.due[from]
	if due.Before(earliest) {
		due = earliest
	}
	due = due.Add(every)
	if wait = max(due.Sub(now), 0); wait > mostWait {
		return wait, false
	}
	if !known && len(p.due) >= mostPaced {
		maps.DeleteFunc(p.due, func(_ string, due time.Time) bool { return due.Before(earliest) })
		if len(p.due) >= mostPaced {
			clear(p.due) // no client may be kept out by the number of others
		}
	}
	if p.due == nil {
		p.due = map[string]time.Time{}
	}
	p.due[from] = due
	return wait, true
}
