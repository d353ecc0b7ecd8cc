package train

import "time"

// stopwatch measures the training time of steps; see Trained.
type stopwatch struct {
	ended  time.Time     // end of the previous step; zero before the first
	apart  time.Duration // time since ended that does not count as training; see pause
	paused bool          // between a call of pause and the end of the pause
	took   time.Duration // training time of the last step
}

// begin begins a step. The result gap is the training time between the previous step and this one.
func (w *stopwatch) begin() (begun time.Time, gap time.Duration) {
	begun = time.Now()
	if !w.ended.IsZero() {
		gap = max(begun.Sub(w.ended)-w.apart, 0)
	}
	return begun, gap
}

// end ends a step. The parameters start and gap are the results of begin.
func (w *stopwatch) end(start time.Time, gap time.Duration) {
	w.ended, w.apart = time.Now(), 0
	w.took = gap + w.ended.Sub(start)
}

// pause starts a pause of training. The caller must call the returned function at the end of the pause. The time
// between both calls does not count as training time. A pause within a pause has no effect.
func (w *stopwatch) pause() (end func()) {
	if w.paused {
		return func() {}
	}
	begun := time.Now()
	w.paused = true
	return func() {
		w.apart += time.Since(begun)
		w.paused = false
	}
}
