package train

import "time"

// stopwatch measures the training time of steps; see Trained.
type stopwatch struct {
	ended  time.Time     // end of the previous step; zero before the first
	apart  time.Duration // time since ended that does not count as training; see pause
	paused bool          // between a call of pause and the end of the pause
	took   time.Duration // training time of the last step
}

// begin begins a step. since is the training time between the previous step and this one.
func (w *stopwatch) begin() (begun time.Time, since time.Duration) {
	begun = time.Now()
	if !w.ended.IsZero() {
		since = max(begun.Sub(w.ended)-w.apart, 0)
	}
	return begun, since
}

// end ends a step, whose begin returned begun and since.
func (w *stopwatch) end(begun time.Time, since time.Duration) {
	w.ended, w.apart = time.Now(), 0
	w.took = since + w.ended.Sub(begun)
}

// pause starts a pause of training. The caller calls the result at the end of the pause. The time between both calls
// does not count as training time. A pause within a pause has no effect.
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
