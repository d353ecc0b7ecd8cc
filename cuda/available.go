package cuda

// UnavailableError says why no GPU can be used.
type UnavailableError string

// ErrNotBuilt is the reason of a program that was built without the CUDA device.
const ErrNotBuilt UnavailableError = "this build contains no CUDA device"

// Error returns the reason with the name of the backend.
func (e UnavailableError) Error() string { return "cuda is unavailable: " + string(e) }

// Available returns nil if GPUs can be used, else an [UnavailableError].
func Available() error { return ErrNotBuilt }
