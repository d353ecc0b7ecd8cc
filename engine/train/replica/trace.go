package replica

import (
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/engine/timeline"
)

// Trace records the replica's work from the next step on; nil stops recording. If the device does not record its own
// activity (timeline.NewNoted), the replica runs and times each launch separately. Trace returns an error on a device
// that only models time. Call it only between steps.
func (r *Replica) Trace(rec *timeline.Recorder) error {
	if rec != nil && r.dev.Info().Modelled {
		return fmt.Errorf("trace: device %s only models time, so its launches cannot be put on the clock of the host",
			r.dev.Info().Name)
	}
	if r.plain == nil {
		r.plain = r.stream
	}
	r.recorder, r.stream = rec, r.plain
	if rec != nil && !rec.Noted() {
		r.stream = rec.Stream(r.plain)
	}
	if r.sums != nil && rec != nil {
		r.sums.Watch(func(gradients bool, name string, begun, ended time.Time, bytes int64) {
			track := timeline.Statistics
			if gradients {
				track = timeline.Gradients
			}
			rec.Exchange(track, name, begun, ended, bytes)
		})
	} else if r.sums != nil {
		r.sums.Watch(nil)
	}
	return nil
}
