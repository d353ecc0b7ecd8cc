package program

import (
	"errors"
	"slices"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/timeline"
)

// noting is a device that notes what it does itself, while steps are recorded.
type noting struct {
	device.ActivityNoter
	over bool
}

// startNoting has the device note what it does. Nil: it does not, and why says what is missing, unless that is the nature of its kind.
func startNoting(dev device.Device) (n *noting, why error) {
	noter, ok := dev.(device.ActivityNoter)
	if !ok {
		return nil, nil
	}
	if err := noter.StartActivity(); errors.Is(err, device.ErrUnsupported) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return &noting{ActivityNoter: noter}, nil
}

// recorder is one of the device's own notes where there are any, else of launches one by one.
func (n *noting) recorder(first int64) *timeline.Recorder {
	if n != nil {
		return timeline.NewNoted(first)
	}
	return timeline.New(first)
}

// errNothingNoted is the error of a device that says that it notes what it does, and does not.
var errNothingNoted = errors.New("the GPU's profiler (CUPTI) noted no kernel")

// finish adds what was noted to what rec has, and says how much was lost.
func (n *noting) finish(rec *timeline.Recorder) (lost int64, err error) {
	if n == nil {
		return 0, nil
	}
	n.over = true
	all, err := n.StopActivity()
	if err != nil {
		return 0, err
	}
	if !slices.ContainsFunc(all.List, func(a device.Activity) bool { return a.Kind == device.KernelActivity }) {
		return all.Lost, errNothingNoted
	}
	return all.Lost, rec.AddActivities(all)
}

// leave ends it, unless it has ended, where there is nobody to read what was noted.
func (n *noting) leave() error {
	if n == nil || n.over {
		return nil
	}
	n.over = true
	_, err := n.StopActivity()
	return err
}
