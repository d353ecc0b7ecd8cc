package device

import "time"

// ActivityKind is what an Activity was.
type ActivityKind uint8

// The kinds of activities.
const (
	KernelActivity ActivityKind = iota
	CopyActivity
	FillActivity
	CallActivity // of the vendor's library, by the host
)

// Activity is something that a device did, or that the host asked it for.
type Activity struct {
	Kind       ActivityKind
	Name       string        // of the kernel or function, as the vendor's library calls it; "" of copies and fills
	Lane       int           // the device's number of the stream; of a call: of the host's thread
	Begin, End time.Duration // after Activities.Zero
	Bytes      int64         // of a copy or fill

	Program Program // that it was part of; nil: of none, or not known
	Step    int     // of Program
}

// Activities are what was noted, in order of Begin. Lost is how many there were besides, for which there was no room or which made no sense.
type Activities struct {
	List []Activity
	Zero time.Time
	Lost int64
}

// ActivityNoter is a device that notes what it does by its own clock: kernels as they ran, within graphs as well, and so what stood between them.
type ActivityNoter interface {
	// StartActivity begins. ErrUnsupported: this kind of device does not; ErrUnavailable says what this machine lacks, and what to do. The first run of a program
	// afterwards may take longer. One at a time in a process.
	StartActivity() error
	// StopActivity waits for all streams of the device, and is what it did since. Programs run then are still open.
	StopActivity() (Activities, error)
}
