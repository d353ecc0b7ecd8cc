package queue

import "time"

// LookEvery is how often a communicator that stands on others asks them whether they have failed.
const LookEvery = 20 * time.Millisecond

// Watch calls look regularly until stop is closed, so that failures are noticed while nothing runs.
func Watch(stop <-chan struct{}, look func()) {
	ticker := time.NewTicker(LookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			look()
		case <-stop:
			return
		}
	}
}
