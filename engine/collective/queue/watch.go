package queue

import "time"

// LookEvery is the interval at which a communicator built from inner communicators checks them for failures.
const LookEvery = 20 * time.Millisecond

// Watch calls check every LookEvery until stop is closed, so that failures are detected while no operation runs.
func Watch(stop <-chan struct{}, check func()) {
	ticker := time.NewTicker(LookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			check()
		case <-stop:
			return
		}
	}
}
