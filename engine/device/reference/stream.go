package reference

import (
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/internal/bookkeeping"
)

// work computes in the calling goroutine. Its clock is the clock of the machine.
type work struct{ start time.Time }

// NewStream implements device.Device.
func (d *Device) NewStream() (device.Stream, error) { return d.NewStreamOf(work{time.Now()}) }

func (work) Launch(s bookkeeping.Step) error { return run(s) }
func (work) Copy(dst, src device.Region)     { copy(dst.Host(), src.Host()) }
func (w work) Now() time.Duration            { return time.Since(w.start) }
func (work) Settle()                         {}
func (work) Passed(time.Duration)            {}
