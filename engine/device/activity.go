package device

import "time"

// ActivityKind is the kind of an Activity.
type ActivityKind uint8

// Kinds of activities.
const (
	KernelActivity ActivityKind = iota
	CopyActivity
	FillActivity
	CallActivity // of the vendor's library, by the host
)

// Activity is work of a device, or a call of the host to the device's library.
type Activity struct {
	Kind       ActivityKind
	Name       string        // of the kernel or function, as in the vendor's library; "" for copies and fills
	Lane       int           // the device's number of the stream; for a call: of the host's thread
	Begin, End time.Duration // since Activities.Zero
	Bytes      int64         // of a copy or fill

	Program Program // that it was part of; nil: none, or unknown
	Step    int     // of Program
}

// Activities are records of activities, in order of Begin. Lost is the number of further activities, for which there
// was no room or whose records were invalid.
type Activities struct {
	List []Activity
	Zero time.Time
	Lost int64
}

// ActivityNoter is a device that records its activities with its own clock: each kernel, also within graphs, and so the
// gaps between kernels.
type ActivityNoter interface {
	// StartActivity starts recording. It returns ErrUnsupported if this kind of device cannot record, and
	// ErrUnavailable, with the missing part and the remedy, if this machine cannot. The first run of a program
	// afterwards may take longer. Only one recording can be active in a process.
	StartActivity() error
	// StopActivity waits for all streams of the device and returns the activities since StartActivity. Programs that
	// ran are still open.
	StopActivity() (Activities, error)
}
