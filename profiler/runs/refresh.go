package runs

import "time"

// refreshPause is the shortest time between two checks by Refresh. It limits the cost if many clients call Refresh.
const refreshPause = 20 * time.Millisecond

// Refresh calls Update if a process of the run has begun or ended since the last Update. The state is therefore out of
// date by at most refreshPause.
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

// due reports whether refreshPause has passed since it last returned true.
func (p *pause) due() bool {
	if time.Since(p.last) < refreshPause {
		return false
	}
	p.last = time.Now()
	return true
}
