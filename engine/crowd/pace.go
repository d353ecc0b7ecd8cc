package crowd

import (
	"maps"
	"time"
)

// Limits of a Pace. With higher rates, clients without the secret take more of the CPU time that the process needs for
// training. Serving and refusing a connection costs about 0.4 ms of CPU time. With lower rates, a client waits longer
// while other programs connect from its address.
var (
	ofEach = rate{burst: 32, every: 200 * time.Millisecond}        // for each address, 0.2 % of a CPU
	ofAll  = rate{burst: 512, every: time.Second / mostServedRate} // for all addresses together, 2.4 % of a CPU
)

const (
	mostServedRate = 60 // connections per second
	// mostWait is the longest wait of a connection.
	mostWait = time.Second
	// mostPaced is the number of addresses that a Pace remembers. If more addresses connect, it forgets all of them.
	// Then only the rate for all addresses together applies.
	mostPaced = 1024
)

// rate permits a number of connections at once, burst, and then one connection in each interval every.
type rate struct {
	burst int
	every time.Duration
}

// after returns the time at which a connection that comes now is due. The parameter due is the time at which the
// previous connection was due.
func (r rate) after(due, now time.Time) time.Time {
	if earliest := now.Add(-time.Duration(r.burst) * r.every); due.Before(earliest) {
		due = earliest
	}
	return due.Add(r.every)
}

// Pace limits the rate of connections, for ports that need only few. After a burst of 32, it permits 5 connections per
// second from each address. After a burst of 512, it permits 60 per second from all addresses. The zero value is ready
// to use. Only one goroutine may use a Pace.
type Pace struct {
	due map[string]time.Time // time at which the latest connection was due, by address
	all time.Time            // time at which the latest connection of any address was due
}

// Admit returns the time for which a connection that comes now must wait before the server serves it. If it would have
// to wait for more than a second, ok is false, and the server must close it. The parameter from is a result of
// [Address].
func (p *Pace) Admit(from string, now time.Time) (wait time.Duration, ok bool) {
	previous, known := p.due[from]
	own, all := ofEach.after(previous, now), ofAll.after(p.all, now)
	latest := now.Add(mostWait)
	if own.After(latest) {
		return 0, false
	}
	if !known && len(p.due) >= mostPaced {
		rested := now.Add(-time.Duration(ofEach.burst) * ofEach.every)
		maps.DeleteFunc(p.due, func(_ string, due time.Time) bool { return due.Before(rested) })
		if len(p.due) >= mostPaced {
			clear(p.due) // the number of other clients must not keep out this client
		}
	}
	if p.due == nil {
		p.due = map[string]time.Time{}
	}
	p.due[from] = own // also if refused below, so that addresses with most connections are refused first
	if all.After(latest) {
		return 0, false
	}
	p.all = all
	return max(own.Sub(now), all.Sub(now), 0), true
}

// Spend uses up the burst of an address. Until the address pauses, it may open only 5 connections per second.
func (p *Pace) Spend(from string, now time.Time) {
	if p.due[from].Before(now) && p.due != nil {
		p.due[from] = now
	}
}
