package cuda

// Reason is an error that says why no GPU can be used.
type Reason string

// NotBuilt is the reason of a program that was built without the CUDA device.
const NotBuilt Reason = "this build contains no CUDA device"

// Error returns the reason with the name of the backend.
func (r Reason) Error() string { return "cuda is unavailable: " + string(r) }

// Available returns nil if GPUs can be used, else a [Reason].
func Available() error { return NotBuilt }
