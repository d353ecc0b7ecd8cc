package device

import "time"

// ActivityKind is the kind of an Activity.
type ActivityKind uint8

// Kinds of activities.
const (
	KernelActivity ActivityKind = iota
	CopyActivity
	FillActivity
	CallActivity // call of the vendor's library by the host
)

// Activity is work of a device, or a call of the device's library by the host.
type Activity struct {
	Kind       ActivityKind
	Name       string        // name of the kernel or function in the vendor's library; "" for copies and fills
	Lane       int           // number of the stream on the device; for a call, number of the host thread
	Begin, End time.Duration // time since Activities.Zero
	Bytes      int64         // bytes of a copy or fill

	Program Program // program that the activity belongs to; nil: none, or unknown
	Step    int     // index of the step in Program
}

// Activities holds records of activities, in the order of Begin. Lost is the number of activities that are missing in
// List: there was no memory for their records, or their records were invalid.
type Activities struct {
	List []Activity
	Zero time.Time
	Lost int64
}

// ActivityNoter is implemented by devices that can record their activities, with the clock of the device. The records
// contain every kernel, including kernels within captured graphs, so they show the gaps between kernels.
type ActivityNoter interface {
	// StartActivity starts recording. It returns ErrUnsupported if this kind of device cannot record. If this machine
	// cannot record, it returns ErrUnavailable, with the missing part and the remedy. After StartActivity, the next run
	// of each program may take longer. Only one recording can be active in a process.
	StartActivity() error
	// StopActivity waits for all streams of the device and returns the activities since StartActivity. If a program has
	// been closed by then, the field Program of its activities is nil.
	StopActivity() (Activities, error)
}
