package observe

import (
	"errors"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/timeline"
)

// Noting is a device that records its own activity, while steps are recorded.
type Noting struct {
	device.ActivityNoter
	over bool
}

// StartNoting starts the recording of the device. The result is nil if the device does not record; why is the reason,
// unless this kind of device never records.
func StartNoting(dev device.Device) (n *Noting, why error) {
	noter, ok := dev.(device.ActivityNoter)
	if !ok {
		return nil, nil
	}
	if err := noter.StartActivity(); errors.Is(err, device.ErrUnsupported) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return &Noting{ActivityNoter: noter}, nil
}

// Recorder returns a recorder for the device's own records if it has any, otherwise one that times launches.
func (n *Noting) Recorder(first int64) *timeline.Recorder {
	if n != nil {
		return timeline.NewNoted(first)
	}
	return timeline.New(first)
}

// ErrNothingNoted is the error of a device that supports recording but recorded nothing.
var ErrNothingNoted = errors.New("the GPU's profiler (CUPTI) recorded no kernel")

// Finish adds the device's records to rec, and reports the number of lost records.
func (n *Noting) Finish(rec *timeline.Recorder) (lost int64, err error) {
	if n == nil {
		return 0, nil
	}
	n.over = true
	all, err := n.StopActivity()
	if err != nil {
		return 0, err
	}
	if !slices.ContainsFunc(all.List, func(a device.Activity) bool { return a.Kind == device.KernelActivity }) {
		return all.Lost, ErrNothingNoted
	}
	return all.Lost, rec.AddActivities(all)
}

// Leave ends a recording that has not ended, and drops its records.
func (n *Noting) Leave() error {
	if n == nil || n.over {
		return nil
	}
	n.over = true
	_, err := n.StopActivity()
	return err
}
