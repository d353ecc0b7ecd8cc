package crowd

import (
	"maps"
	"time"
)

// Limits of a Pace. At larger rates, strangers take more of the CPU that the process needs for training: a connection
// that is served and refused costs about 0.4 ms. At smaller rates, a client waits longer while strangers connect from
// its address.
var (
	ofEach = rate{burst: 32, every: 200 * time.Millisecond}        // 0.2 % of a CPU for each address
	ofAll  = rate{burst: 512, every: time.Second / mostServedRate} // 2.4 % of a CPU for all addresses together
)

const (
	mostServedRate = 60 // connections per second
	// mostWait is the longest wait of a connection.
	mostWait = time.Second
	// mostPaced is the number of addresses that a Pace remembers. If more connect, it forgets them all, and then only
	// the rate of all addresses limits them.
	mostPaced = 1024
)

// rate permits a connection in each interval after a burst.
type rate struct {
	burst int
	every time.Duration
}

// after returns the time at which the next connection is due if one came now. due is that of the previous connection.
func (r rate) after(due, now time.Time) time.Time {
	if earliest := now.Add(-time.Duration(r.burst) * r.every); due.Before(earliest) {
		due = earliest
	}
	return due.Add(r.every)
}

// Pace limits the rate of connections, for ports that need few of them: 5 connections per second of each address after
// a burst of 32, and 60 of all addresses after a burst of 512. The zero value is ready. One goroutine may use it.
type Pace struct {
	due map[string]time.Time // by address: time at which the next connection may come if none came before
	all time.Time            // the same for all addresses together
}

// Admit returns how long a connection of an address that came now must wait before it is served. If it would wait for
// more than a second, ok is false: the server closes it. Addresses are those of Address.
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
			clear(p.due) // no client may be kept out by the number of others
		}
	}
	if p.due == nil {
		p.due = map[string]time.Time{}
	}
	p.due[from] = own // even if all addresses together have sent too many: those that send most are refused first
	if all.After(latest) {
		return 0, false
	}
	p.all = all
	return max(own.Sub(now), all.Sub(now), 0), true
}

// Spend takes the burst of an address away. Until it rests, it has 5 connections per second.
func (p *Pace) Spend(from string, now time.Time) {
	if p.due[from].Before(now) && p.due != nil {
		p.due[from] = now
	}
}
