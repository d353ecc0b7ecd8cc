package runs

import "time"

// refreshPause is the shortest time between two checks by Refresh, which many clients may call.
const refreshPause = 20 * time.Millisecond

// Refresh calls Update if a process of the run has begun or ended since the last Update, so that the state is at most
// refreshPause older than the call.
func (r *Run) Refresh() {
	r.mu.Lock()
	changed := r.looks.due() && !r.evidence.use.same(useOf(r.root))
	r.mu.Unlock()
	if changed {
		r.Update(leastTurn)
	}
}

// pause stores the time of the last check by Refresh.
type pause struct{ last time.Time }

// due reports whether refreshPause has passed since it was last true.
func (p *pause) due() bool {
	if time.Since(p.last) < refreshPause {
		return false
	}
	p.last = time.Now()
	return true
}
