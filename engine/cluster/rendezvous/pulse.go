package rendezvous

import "time"

// pulse is a ticker for heartbeats. Its interval is an eighth of HeartbeatTimeout, but at most 1 s.
type pulse struct {
	every  time.Duration
	ticker *time.Ticker
	last   time.Time
}

func newPulse(timeout time.Duration) *pulse {
	every := min(max(timeout/8, 10*time.Millisecond), time.Second)
	return &pulse{every: every, ticker: time.NewTicker(every), last: time.Now()}
}

// next waits until the next heartbeat is due. The result ok is false if done is closed. The result slept is true if
// this process or its machine was stopped for a while.
func (p *pulse) next(done <-chan struct{}) (slept, ok bool) {
	select {
	case <-done:
		return false, false
	case <-p.ticker.C:
	}
	now := time.Now()
	slept = now.Sub(p.last) > 3*p.every
	p.last = now
	return slept, true
}

func (p *pulse) stop() { p.ticker.Stop() }
