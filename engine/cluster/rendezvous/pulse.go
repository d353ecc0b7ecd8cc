package rendezvous

import "time"

// pulse is a ticker for heartbeats. Its interval is an eighth of the time after which a silent rank is lost, at most 1
// s.
type pulse struct {
	every  time.Duration
	ticker *time.Ticker
	last   time.Time
}

func newPulse(timeout time.Duration) *pulse {
	every := min(max(timeout/8, 10*time.Millisecond), time.Second)
	return &pulse{every: every, ticker: time.NewTicker(every), last: time.Now()}
}

// next waits for the next heartbeat; ok is false when done is closed. slept means that this process, or its machine,
// was stopped for a while.
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
