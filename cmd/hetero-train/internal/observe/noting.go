package observe

import (
	"errors"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/timeline"
)

// Noting is a device that notes what it does itself, while steps are recorded.
type Noting struct {
	device.ActivityNoter
	over bool
}

// StartNoting has the device note what it does. Nil: it does not, and why says what is missing, unless that is the nature of its kind.
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

// Recorder is one of the device's own notes where there are any, else of launches one by one.
func (n *Noting) Recorder(first int64) *timeline.Recorder {
	if n != nil {
		return timeline.NewNoted(first)
	}
	return timeline.New(first)
}

// ErrNothingNoted is the error of a device that says that it notes what it does, and does not.
var ErrNothingNoted = errors.New("the GPU's profiler (CUPTI) recorded no kernel")

// Finish adds what was noted to what rec has, and says how much was lost.
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

// Leave ends it, unless it has ended, where there is nobody to read what was noted.
func (n *Noting) Leave() error {
	if n == nil || n.over {
		return nil
	}
	n.over = true
	_, err := n.StopActivity()
	return err
}
