package observe

import (
	"errors"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/timeline"
)

// Noting is the recording of a device's activity by the device itself.
type Noting struct {
	device.ActivityNoter
	over bool
}

// StartNoting starts the recording of a device's activity. If the recording cannot start, n is nil and why is the
// reason. Both are nil if this kind of device does not support recordings.
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

// Recorder returns a recorder for the steps from first. If the device records its own activity, the recorder later gets
// these records. Otherwise it measures the time of each launch.
func (n *Noting) Recorder(first int64) *timeline.Recorder {
	if n != nil {
		return timeline.NewNoted(first)
	}
	return timeline.New(first)
}

// ErrNothingNoted is the error of a device that supports recordings but has recorded no kernel.
var ErrNothingNoted = errors.New("the GPU's profiler (CUPTI) recorded no kernel")

// Finish ends the recording and adds the records of the device to rec. The result lost is the number of records that
// the device dropped.
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

// Leave ends a recording that has not ended yet, and discards its records.
func (n *Noting) Leave() error {
	if n == nil || n.over {
		return nil
	}
	n.over = true
	_, err := n.StopActivity()
	return err
}
