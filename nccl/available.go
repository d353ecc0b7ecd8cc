package nccl

// Reason is an error that says why NCCL cannot be used.
type Reason string

// NotBuilt is the reason of a program that was built without the NCCL communicator.
const NotBuilt Reason = "this build contains no NCCL communicator"

// Error returns the reason with the name of the backend.
func (r Reason) Error() string { return "nccl is unavailable: " + string(r) }

// Available returns nil if NCCL can be used, else a [Reason].
func Available() error { return NotBuilt }
